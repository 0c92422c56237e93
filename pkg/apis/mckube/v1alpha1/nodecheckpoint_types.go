package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FinalizerCheckpoint keeps a NodeCheckpoint until no agent holds anything of it.
const FinalizerCheckpoint = Group + "/checkpoint"

// CheckpointStage is how far agents may go. It only advances, and Release and Discard are its ends.
// +kubebuilder:validation:Enum=Checkpoint;Transfer;Restore;HandOver;Release;Discard
type CheckpointStage string

// Stages.
const (
	// StageCheckpoint: the source's agent stops the containers, writes their state, and leaves them stopped.
	StageCheckpoint CheckpointStage = "Checkpoint"
	// StageTransfer: the target's agent fetches the archives, verifies them, and gives them to its runtime.
	StageTransfer CheckpointStage = "Transfer"
	// StageRestore: a pod may have been made of the state. No time ends that: were the source to run on by itself, there could be two.
	StageRestore CheckpointStage = "Restore"
	// StageHandOver: the source has been evicted, and never runs again, whatever becomes of its state. The target's agent keeps that
	// until a pod has been made of it.
	StageHandOver CheckpointStage = "HandOver"
	// StageRelease: the pod runs on the target. Archives are removed; the source stays stopped, as it is about to go.
	StageRelease CheckpointStage = "Release"
	// StageDiscard: it came to nothing. The source runs on; archives and images are removed.
	StageDiscard CheckpointStage = "Discard"
)

// GivenUp tells whether the source is gone, or about to go, for good: it never runs again.
func (s CheckpointStage) GivenUp() bool { return s == StageHandOver || s == StageRelease }

// CheckpointState is how far an agent has come.
// +kubebuilder:validation:Enum=Working;Checkpointed;Transferred;Released;Discarded;Failed
type CheckpointState string

// States.
const (
	// CheckpointWorking: the agent is at it.
	CheckpointWorking CheckpointState = "Working"
	// CheckpointCheckpointed: the source's containers are stopped and their archives complete.
	CheckpointCheckpointed CheckpointState = "Checkpointed"
	// CheckpointTransferred: the target's runtime has what it needs to restore.
	CheckpointTransferred CheckpointState = "Transferred"
	// CheckpointReleased, CheckpointDiscarded: nothing is held any longer.
	CheckpointReleased  CheckpointState = "Released"
	CheckpointDiscarded CheckpointState = "Discarded"
	// CheckpointFailed: it cannot be done; the message says why. The source runs on.
	CheckpointFailed CheckpointState = "Failed"
)

// CheckpointDisturbance is how a source did not stand still.
// +kubebuilder:validation:Enum=Resumed;Ended
type CheckpointDisturbance string

// Disturbances.
const (
	// CheckpointResumed: somebody else has resumed a container. It has what it had in memory, and newer than its archive.
	CheckpointResumed CheckpointDisturbance = "Resumed"
	// CheckpointEnded: a container has ended, as its liveness probe, want of memory or somebody has ended it. What it had in memory is in its archive at
	// most; one that the kubelet has begun in its place knows nothing of it.
	CheckpointEnded CheckpointDisturbance = "Ended"
)

// CheckpointedContainer is a container whose state is taken.
type CheckpointedContainer struct {
	// name of the container.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
}

// NodeCheckpointSpec is whose state goes from which node to which.
// +kubebuilder:validation:XValidation:rule="self.podUID == oldSelf.podUID && self.podName == oldSelf.podName && self.podNamespace == oldSelf.podNamespace && self.sourceNode == oldSelf.sourceNode && self.targetNode == oldSelf.targetNode && self.containers == oldSelf.containers",message="only stage, expires and maxBytes may be changed"
// +kubebuilder:validation:XValidation:rule="self.stage == oldSelf.stage || !(oldSelf.stage in ['Release', 'Discard'])",message="stage cannot be changed once it is Release or Discard"
// +kubebuilder:validation:XValidation:rule="oldSelf.stage != 'Transfer' || self.stage != 'Checkpoint'",message="stage cannot go back from Transfer to Checkpoint"
// +kubebuilder:validation:XValidation:rule="oldSelf.stage != 'Restore' || !(self.stage in ['Checkpoint', 'Transfer'])",message="stage cannot go back from Restore"
// +kubebuilder:validation:XValidation:rule="oldSelf.stage != 'HandOver' || self.stage in ['HandOver', 'Release']",message="stage can only become Release once it is HandOver"
// +kubebuilder:validation:XValidation:rule="self.sourceNode != self.targetNode",message="targetNode must be another node than sourceNode"
type NodeCheckpointSpec struct {
	// podNamespace of the pod.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	PodNamespace string `json:"podNamespace"`
	// podName of the pod.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	PodName string `json:"podName"`
	// podUID of the pod; a later one of the same name is another.
	PodUID types.UID `json:"podUID"`
	// containers whose state is taken.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Containers []CheckpointedContainer `json:"containers"`
	// sourceNode that the pod is on.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SourceNode string `json:"sourceNode"`
	// targetNode that it goes to.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	TargetNode string `json:"targetNode"`
	// stage that agents may go to.
	Stage CheckpointStage `json:"stage"`
	// maxBytes of an archive. Left out: what the agents allow.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxBytes *int64 `json:"maxBytes,omitempty"`
	// expires is when agents discard what they hold though nobody has told them to, up to stage Transfer: from Restore on another pod may be at
	// work with the state.
	Expires metav1.Time `json:"expires"`
}

// CheckpointArchive is the state of a container on a node.
type CheckpointArchive struct {
	// container of the pod.
	Container string `json:"container"`
	// bytes of the archive.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// digest of it: sha256: and hexadecimal digits.
	// +optional
	Digest string `json:"digest,omitempty"`
	// image is what the target's runtime knows it as.
	// +optional
	Image string `json:"image,omitempty"`
	// restored is the ID of the container that the target's runtime made of it, as the runtime itself tells. It is the
	// evidence that a pod which runs has not begun anew.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Restored string `json:"restored,omitempty"`
}

// CheckpointSide is what the agent of one node reports.
type CheckpointSide struct {
	// state it has come to.
	State CheckpointState `json:"state"`
	// message in words.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// pending tells, of a source that is Discarded or Failed, that this is decided, and its containers stand still yet: they are about to be resumed. It
	// goes once they run on. False or left out: nothing is left to do.
	// +optional
	Pending bool `json:"pending,omitempty"`
	// disturbance is how the source's containers did not stay stopped; empty: they did. The agent stops them again where it holds on. Ended stays, once it
	// is said.
	// +optional
	Disturbance CheckpointDisturbance `json:"disturbance,omitempty"`
	// address at which the source's agent serves archives: host and port.
	// +optional
	// +kubebuilder:validation:MaxLength=261
	Address string `json:"address,omitempty"`
	// certificate that the agent shows the other one and is shown by: sha256: and hexadecimal digits of its DER form.
	// The agents of a NodeCheckpoint speak with each other only.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Certificate string `json:"certificate,omitempty"`
	// archives that it holds.
	// +optional
	// +listType=map
	// +listMapKey=container
	// +kubebuilder:validation:MaxItems=16
	Archives []CheckpointArchive `json:"archives,omitempty"`
	// bytes that were written or received so far.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// stoppedTime is since when the source's containers are stopped.
	// +optional
	StoppedTime *metav1.MicroTime `json:"stoppedTime,omitempty"`
	// progressTime is when bytes last grew.
	// +optional
	ProgressTime *metav1.MicroTime `json:"progressTime,omitempty"`
}

// Settled tells whether the agent has said its last word: it holds nothing any longer, but for files and images that it has not been able to give back. Nil:
// it has not.
func (s *CheckpointSide) Settled() bool { return s.Decided() && !s.Pending }

// Decided tells whether the agent holds nothing any longer, or is about to. Nil: it does not.
func (s *CheckpointSide) Decided() bool {
	if s == nil {
		return false
	}
	switch s.State {
	case CheckpointReleased, CheckpointDiscarded, CheckpointFailed:
		return true
	}
	return false
}

// NodeCheckpointStatus is what the two agents report, each its own side.
type NodeCheckpointStatus struct {
	// source is what the agent of sourceNode reports.
	// +optional
	Source *CheckpointSide `json:"source,omitempty"`
	// target is what the agent of targetNode reports.
	// +optional
	Target *CheckpointSide `json:"target,omitempty"`
}

// NodeCheckpoint has the agents of two nodes bring the state of a pod's containers from one to the other. The controller
// makes it for a PodMigration; archives are treated as Secrets.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=nckpt,categories=mainspring
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.sourceNode`
// +kubebuilder:selectablefield:JSONPath=`.spec.targetNode`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.podName`
// +kubebuilder:printcolumn:name="From",type=string,JSONPath=`.spec.sourceNode`
// +kubebuilder:printcolumn:name="To",type=string,JSONPath=`.spec.targetNode`
// +kubebuilder:printcolumn:name="Stage",type=string,JSONPath=`.spec.stage`
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.status.source.state`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.status.target.state`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeCheckpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is to be done.
	Spec NodeCheckpointSpec `json:"spec"`
	// status is what the agents report.
	// +optional
	Status NodeCheckpointStatus `json:"status,omitempty"`
}

// Holds tells whether a pod stands still for it, is to, or is about to go for it: until that is over, whatever its PodMigration says, nobody else may move the
// pod. What it has in memory may be nowhere else, or at work elsewhere.
func (nc *NodeCheckpoint) Holds(pod types.UID) bool {
	return nc.Spec.PodUID == pod && (nc.Spec.Stage.GivenUp() || !nc.Status.Source.Settled())
}

// NodeCheckpointList is a list of NodeCheckpoints.
// +kubebuilder:object:root=true
type NodeCheckpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeCheckpoint `json:"items"`
}
