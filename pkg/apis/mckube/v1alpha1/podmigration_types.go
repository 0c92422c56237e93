package v1alpha1

import (
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FinalizerMigration keeps a PodMigration until nothing of it is under way.
const FinalizerMigration = Group + "/migration"

// LabelMigrationAction is, on a PodMigration, the RTAction that it is the record of, where that was there first: the ladder
// asks for actions.
const LabelMigrationAction = Group + "/of-action"

// AnnotationMigrationCause is the cause of that action.
const AnnotationMigrationCause = Group + "/cause"

// AnnotationMigration is, on an Eviction, the PodMigration (namespace/name) that it is for.
const AnnotationMigration = Group + "/migration"

// GateMigration is the scheduling gate of a pod in the place of one that is migrated, until the target is known to have
// room for it.
const GateMigration = Group + "/migration"

// MigrationStrategy is how a pod gets to another node.
// +kubebuilder:validation:Enum=Checkpoint;Surge;Restart;Evict
type MigrationStrategy string

// Strategies, from that which keeps most to that which promises least.
const (
	// StrategyCheckpoint takes what is in the pod's memory along.
	StrategyCheckpoint MigrationStrategy = "Checkpoint"
	// StrategySurge has a second pod run on the target before the first one goes.
	StrategySurge MigrationStrategy = "Surge"
	// StrategyRestart evicts the pod, and has the one in its place run on the target.
	StrategyRestart MigrationStrategy = "Restart"
	// StrategyEvict evicts the pod, and leaves it to the scheduler where the one in its place runs.
	StrategyEvict MigrationStrategy = "Evict"
)

// MigrationTrigger is why a pod is to go.
// +kubebuilder:validation:Enum=Manual;Eviction;Drain;RTPressure;ResourcePressure;Consolidation;Drift;Expiration;Interruption;Repair;Cost;Power
type MigrationTrigger string

// Triggers.
const (
	TriggerManual           MigrationTrigger = "Manual"
	TriggerEviction         MigrationTrigger = "Eviction"
	TriggerDrain            MigrationTrigger = "Drain"
	TriggerRTPressure       MigrationTrigger = "RTPressure"
	TriggerResourcePressure MigrationTrigger = "ResourcePressure"
	TriggerConsolidation    MigrationTrigger = "Consolidation"
	TriggerDrift            MigrationTrigger = "Drift"
	TriggerExpiration       MigrationTrigger = "Expiration"
	TriggerInterruption     MigrationTrigger = "Interruption"
	TriggerRepair           MigrationTrigger = "Repair"
	TriggerCost             MigrationTrigger = "Cost"
	TriggerPower            MigrationTrigger = "Power"
)

// Known tells whether it is one of the triggers.
func (t MigrationTrigger) Known() bool {
	switch t {
	case TriggerManual, TriggerEviction, TriggerDrain, TriggerRTPressure, TriggerResourcePressure, TriggerConsolidation,
		TriggerDrift, TriggerExpiration, TriggerInterruption, TriggerRepair, TriggerCost, TriggerPower:
		return true
	}
	return false
}

// Protective tells whether a pod that stays would be worse off: such migrations go on where optional ones are denied
// because nobody answers.
func (t MigrationTrigger) Protective() bool {
	switch t {
	case TriggerRTPressure, TriggerInterruption, TriggerRepair, TriggerEviction, TriggerDrain:
		return true
	}
	return false
}

// MigrationPhase is how far a migration has come.
// +kubebuilder:validation:Enum=Pending;Reserving;Checkpointing;Transferring;Restoring;Verifying;CuttingOver;RollingBack;Succeeded;SucceededWithoutState;Failed;RolledBack;Aborted;Refused;DryRun
type MigrationPhase string

// Phases. A phase is written before what is done in it.
const (
	// MigrationPending: admitted by nobody yet, or waiting for its turn in the queue.
	MigrationPending MigrationPhase = "Pending"
	// MigrationReserving: room on the target is being kept, cores included.
	MigrationReserving MigrationPhase = "Reserving"
	// MigrationCheckpointing: the source is stopped and its state written.
	MigrationCheckpointing MigrationPhase = "Checkpointing"
	// MigrationTransferring: the state goes to the target.
	MigrationTransferring MigrationPhase = "Transferring"
	// MigrationRestoring: the pod in its place is being made.
	MigrationRestoring MigrationPhase = "Restoring"
	// MigrationVerifying: the pod in its place runs, and must prove it.
	MigrationVerifying MigrationPhase = "Verifying"
	// MigrationCuttingOver: the source is about to go. Once it goes nothing can be undone. It comes last, but where the pod in
	// its place is made only afterwards (Restart, Evict).
	MigrationCuttingOver MigrationPhase = "CuttingOver"
	// MigrationRollingBack: what was done is being undone.
	MigrationRollingBack MigrationPhase = "RollingBack"

	MigrationSucceeded MigrationPhase = "Succeeded"
	// MigrationSucceededWithoutState: the pod runs elsewhere, and began anew though its state was to come along.
	MigrationSucceededWithoutState MigrationPhase = "SucceededWithoutState"
	// MigrationFailed: the source is gone, and the pod in its place is not what it should be; or what the source had in memory is lost.
	MigrationFailed MigrationPhase = "Failed"
	// MigrationRolledBack: it came to nothing, and the source runs on.
	MigrationRolledBack MigrationPhase = "RolledBack"
	// MigrationAborted: as RolledBack, because it was no longer wanted.
	MigrationAborted MigrationPhase = "Aborted"
	// MigrationRefused: nothing was begun, for the reason in condition Admitted.
	MigrationRefused MigrationPhase = "Refused"
	// MigrationDryRun: nothing was done, as was asked for; the status says what would have been.
	MigrationDryRun MigrationPhase = "DryRun"
)

// Over tells whether the phase is for good.
func (p MigrationPhase) Over() bool {
	switch p {
	case MigrationSucceeded, MigrationSucceededWithoutState, MigrationFailed, MigrationRolledBack, MigrationAborted, MigrationRefused, MigrationDryRun:
		return true
	}
	return false
}

// Conditions of a PodMigration.
const (
	// ConditionMigrationAdmitted: the pod may be moved, a target is known, and policy allows it. Its reason says what does
	// not let it.
	ConditionMigrationAdmitted = "Admitted"
	// ConditionMigrationVerified: the pod in its place was seen to be what it should be, with the evidence in words.
	ConditionMigrationVerified = "Verified"
	// ConditionMigrationState: the pod's state comes along, or, when False, why it was to and does not.
	// Unknown: nobody goes on with it yet, and it is kept.
	ConditionMigrationState = "State"
	// ReasonStateKept is the reason of condition State while its source was evicted, or has ended, its action is over, and its target keeps the state for a
	// pod that cannot be made yet, or has still to go on with it.
	ReasonStateKept = "Kept"
	// ConditionMigrationDone: it is over.
	ConditionMigrationDone = "Done"
)

// PodMigrationSpec is which pod is to go, where to, and how. Only abort, waitTimeout, ttlSecondsAfterFinished and reason may be changed.
// +kubebuilder:validation:XValidation:rule="self.podName == oldSelf.podName && self.trigger == oldSelf.trigger && self.dryRun == oldSelf.dryRun",message="podName, trigger and dryRun cannot be changed; create another PodMigration"
// +kubebuilder:validation:XValidation:rule="has(self.targetNode) == has(oldSelf.targetNode) && (!has(self.targetNode) || self.targetNode == oldSelf.targetNode)",message="targetNode cannot be changed; create another PodMigration"
// +kubebuilder:validation:XValidation:rule="has(self.strategy) == has(oldSelf.strategy) && (!has(self.strategy) || self.strategy == oldSelf.strategy)",message="strategy cannot be changed; create another PodMigration"
// +kubebuilder:validation:XValidation:rule="has(self.podUID) == has(oldSelf.podUID) && (!has(self.podUID) || self.podUID == oldSelf.podUID)",message="podUID cannot be changed; create another PodMigration"
// +kubebuilder:validation:XValidation:rule="has(self.timeout) == has(oldSelf.timeout) && (!has(self.timeout) || self.timeout == oldSelf.timeout)",message="timeout cannot be changed; create another PodMigration"
// +kubebuilder:validation:XValidation:rule="!oldSelf.abort || self.abort",message="abort cannot be taken back; create another PodMigration"
type PodMigrationSpec struct {
	// podName is the pod, in the PodMigration's namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	PodName string `json:"podName"`
	// podUID is the pod's uid; a later one of the same name is another and is refused. Left out: the pod that has the name
	// when the migration is looked at first.
	// +optional
	PodUID types.UID `json:"podUID,omitempty"`
	// targetNode is where it goes. Left out: the node that takes it and then has most headroom.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	TargetNode string `json:"targetNode,omitempty"`
	// strategy is Checkpoint, Surge, Restart or Evict. Left out: what the McKube says, then the MigrationPolicy, else Surge
	// where the owner allows two copies and Restart where not.
	// +optional
	Strategy MigrationStrategy `json:"strategy,omitempty"`
	// trigger is why. Default Manual.
	// +optional
	// +kubebuilder:default=Manual
	Trigger MigrationTrigger `json:"trigger,omitempty"`
	// reason is why, in words.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// timeout bounds the whole migration from its start. Left out: by the size of its state and its progress.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="timeout must be from 1s to 24h"
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// waitTimeout bounds how long it waits for its turn, that is for limits of its MigrationPolicy and for the queue. Then it is aborted,
	// and its message says what it waited for. Default 1h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="waitTimeout must be from 1s to 168h"
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	WaitTimeout *metav1.Duration `json:"waitTimeout,omitempty"`
	// abort ends the migration: up to the cut-over everything is undone and the source runs on.
	// +optional
	// +kubebuilder:default=false
	Abort bool `json:"abort"`
	// dryRun: everything is decided and reported, and nothing is done.
	// +optional
	// +kubebuilder:default=false
	DryRun bool `json:"dryRun"`
	// ttlSecondsAfterFinished is how long the object is kept when it is over. Default 3600.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	// +kubebuilder:default=3600
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// MigrationEnd is one end of a migration.
type MigrationEnd struct {
	// podName is the pod's name.
	// +optional
	PodName string `json:"podName,omitempty"`
	// podUID is the pod's uid.
	// +optional
	PodUID types.UID `json:"podUID,omitempty"`
	// node that it is on or goes to.
	// +optional
	Node string `json:"node,omitempty"`
	// completionIndex of an Indexed Job that it is of.
	// +optional
	CompletionIndex string `json:"completionIndex,omitempty"`
}

// MigrationOwner is the controller that makes the pod again.
type MigrationOwner struct {
	// apiVersion of it.
	APIVersion string `json:"apiVersion"`
	// kind of it.
	Kind string `json:"kind"`
	// name of it, in the PodMigration's namespace.
	Name string `json:"name"`
	// uid of it.
	UID types.UID `json:"uid"`
}

// MigrationDecision is what policy said.
type MigrationDecision struct {
	// policy is the MigrationPolicy, if one selects the pod.
	// +optional
	Policy string `json:"policy,omitempty"`
	// rule of it that decided, if one did.
	// +optional
	Rule string `json:"rule,omitempty"`
	// engine: Allow, Deny, ErrorOpen, ErrorClosed, Timeout, Cached; empty when none was asked.
	// +optional
	Engine string `json:"engine,omitempty"`
	// allowed is the result.
	Allowed bool `json:"allowed"`
	// reason of it, in words.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// latencyMilliseconds is how long deciding took.
	// +optional
	LatencyMilliseconds int64 `json:"latencyMilliseconds,omitempty"`
}

// MigrationCheckpointStatus is the state that comes along.
type MigrationCheckpointStatus struct {
	// containers and their archives.
	// +optional
	// +listType=map
	// +listMapKey=container
	// +kubebuilder:validation:MaxItems=64
	Containers []MigrationArchive `json:"containers,omitempty"`
}

// MigrationArchive is the checkpoint of a container.
type MigrationArchive struct {
	// container of the pod.
	Container string `json:"container"`
	// bytes of the archive.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// digest of the archive: sha256: and hexadecimal digits.
	// +optional
	Digest string `json:"digest,omitempty"`
	// transferred is how many bytes the target has.
	// +optional
	Transferred int64 `json:"transferred,omitempty"`
}

// PodMigrationStatus is how far it has come. It is written before what it permits is done.
type PodMigrationStatus struct {
	// phase of the migration.
	// +optional
	// +kubebuilder:default=Pending
	Phase MigrationPhase `json:"phase,omitempty"`
	// phaseTime is when it came into its phase.
	// +optional
	PhaseTime *metav1.MicroTime `json:"phaseTime,omitempty"`
	// strategy that is used.
	// +optional
	Strategy MigrationStrategy `json:"strategy,omitempty"`
	// action is the RTAction that does it.
	// +optional
	Action string `json:"action,omitempty"`
	// source is the pod that goes.
	// +optional
	Source *MigrationEnd `json:"source,omitempty"`
	// owner of the source. Left out: nobody makes the pod again.
	// +optional
	Owner *MigrationOwner `json:"owner,omitempty"`
	// target is the pod in its place.
	// +optional
	Target *MigrationEnd `json:"target,omitempty"`
	// decision of the policy.
	// +optional
	Decision *MigrationDecision `json:"decision,omitempty"`
	// checkpoint is the state that comes along.
	// +optional
	Checkpoint *MigrationCheckpointStatus `json:"checkpoint,omitempty"`
	// unavailableMilliseconds is for how long neither pod served.
	// +optional
	UnavailableMilliseconds *int64 `json:"unavailableMilliseconds,omitempty"`
	// message says in words where it is, or why it ended so.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
	// startTime is when it left Pending.
	// +optional
	StartTime *metav1.MicroTime `json:"startTime,omitempty"`
	// progressTime is when something was last seen to advance.
	// +optional
	ProgressTime *metav1.MicroTime `json:"progressTime,omitempty"`
	// completionTime is when it was over.
	// +optional
	CompletionTime *metav1.MicroTime `json:"completionTime,omitempty"`
	// conditions: Admitted, State, Verified, Done.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PodMigration moves one pod to another node. Creating one by hand is a supported way to do so; deleting one aborts it.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=pmig,categories=mainspring
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.podName`
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.status.strategy`
// +kubebuilder:printcolumn:name="From",type=string,JSONPath=`.status.source.node`
// +kubebuilder:printcolumn:name="To",type=string,JSONPath=`.status.target.node`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Trigger",type=string,JSONPath=`.spec.trigger`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
type PodMigration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is to be done.
	Spec PodMigrationSpec `json:"spec"`
	// status is how far it has come.
	// +optional
	Status PodMigrationStatus `json:"status,omitempty"`
}

// PodMigrationList is a list of PodMigrations.
// +kubebuilder:object:root=true
type PodMigrationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodMigration `json:"items"`
}

// AwaitsReplacement tells whether a pod that is made now may be in the place of the one that is migrated: its owner's, which is about to go, or gone, and
// no other has its place. A StatefulSet's has its name, an Indexed Job's its index.
func AwaitsReplacement(o *PodMigration, pod metav1.Object) bool {
	s, owner := o.Status, metav1.GetControllerOf(pod)
	if owner == nil || s.Owner == nil || s.Owner.UID != owner.UID || s.Strategy != StrategyRestart {
		return false
	}
	if s.Source != nil && (owner.Kind == "StatefulSet" && pod.GetName() != s.Source.PodName || pod.GetAnnotations()[batchv1.JobCompletionIndexAnnotation] != s.Source.CompletionIndex) {
		return false
	}
	placed := s.Target != nil && s.Target.PodUID != ""
	return !placed && (s.Phase == MigrationCuttingOver || s.Phase == MigrationRestoring)
}
