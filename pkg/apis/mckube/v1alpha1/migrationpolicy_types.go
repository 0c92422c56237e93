package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FailurePolicy is what counts as the answer of a policy engine that does not give one.
// +kubebuilder:validation:Enum=Allow;Deny;Rules
type FailurePolicy string

// Failure policies.
const (
	// FailureAllow: it counts as yes, as in the SDI Migration Service.
	FailureAllow FailurePolicy = "Allow"
	// FailureDeny: it counts as no.
	FailureDeny FailurePolicy = "Deny"
	// FailureRules: what the rules said stands.
	FailureRules FailurePolicy = "Rules"
)

// RuleAction is what a rule does when its expression holds.
// +kubebuilder:validation:Enum=Allow;Deny
type RuleAction string

// Actions of rules.
const (
	RuleAllow RuleAction = "Allow"
	RuleDeny  RuleAction = "Deny"
)

// MigrationRule is one rule. Rules are looked at in their order, and the first whose expression holds decides; when none
// does the migration is allowed.
type MigrationRule struct {
	// name of the rule, for messages.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// expression in CEL that yields a bool, over pod, source, target, trigger, mckube, male, budget and now.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression"`
	// action is Allow or Deny.
	Action RuleAction `json:"action"`
	// message is the reason that is given. Default: the name.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// MigrationLimits bound how many pods are on the move. Those of the orchestration queue hold beside them.
type MigrationLimits struct {
	// perNode: migrations away from one node, and to one node, at once. Default 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	PerNode *int32 `json:"perNode,omitempty"`
	// perNamespace: migrations of one namespace at once. Left out: no limit of its own.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	PerNamespace *int32 `json:"perNamespace,omitempty"`
	// perCluster: migrations of pods that this policy selects at once. Default 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	PerCluster *int32 `json:"perCluster,omitempty"`
	// perWorkloadPerHour: migrations of the pods of one owner that are begun within an hour, but for protective triggers.
	// Default 12.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	PerWorkloadPerHour *int32 `json:"perWorkloadPerHour,omitempty"`
}

// MigrationWindow is when optional migrations may begin.
type MigrationWindow struct {
	// schedule is when it opens: five fields of cron, in UTC.
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule"`
	// duration is for how long it is open.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="duration must be from 1m to 168h"
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	Duration metav1.Duration `json:"duration"`
}

// SecretKey is a key of a Secret in the namespace of the controller.
type SecretKey struct {
	// name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// key in it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// PolicyEngine is an HTTP service that is asked after the rules: POST <url>/api/v1/migration/policy, as the SDI Migration
// Service asks it.
// +kubebuilder:validation:XValidation:rule="self.url.startsWith('https://') || !has(self.caBundle)",message="caBundle is only for https"
// +kubebuilder:validation:XValidation:rule="self.url.startsWith('https://') || !has(self.tokenSecret)",message="tokenSecret is only for https: a token is not sent in the clear"
type PolicyEngine struct {
	// url of the service, http or https, without the path.
	// +kubebuilder:validation:Pattern=`^https?://[^\s/?#]+(/[^\s?#]*)?$`
	// +kubebuilder:validation:MaxLength=512
	URL string `json:"url"`
	// timeout of one question. Default 2s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('30s')",message="timeout must be from 10ms to 30s"
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// failurePolicy is what counts as the answer when there is none: Allow, Deny, or Rules (what the rules said stands).
	// Left out: Rules for protective triggers (RTPressure, Interruption, Repair, Eviction, Drain), Deny for all others.
	// +optional
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`
	// caBundle are PEM certificates that the service's is verified with. Left out: those of the system.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle string `json:"caBundle,omitempty"`
	// tokenSecret holds a bearer token. The Secret's annotation mckube.io/policy-engine-hosts names the hosts, with their ports as url has them and with commas between them,
	// to which its tokens may be sent.
	// +optional
	TokenSecret *SecretKey `json:"tokenSecret,omitempty"`
}

// TokenHostsAnnotation of a Secret names the hosts to which its tokens may be sent (spec.policyEngine.tokenSecret).
const TokenHostsAnnotation = "mckube.io/policy-engine-hosts"

// MigrationPolicySpec says which pods may be migrated when, how and how many at once.
type MigrationPolicySpec struct {
	// selector of pods by labels. Empty or left out: all.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// namespaceSelector of their namespaces. Empty or left out: all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// strategy where neither PodMigration nor McKube says one.
	// +optional
	Strategy MigrationStrategy `json:"strategy,omitempty"`
	// checkpointing: whether Checkpoint may be used at all. Default true.
	// +optional
	// +kubebuilder:default=true
	Checkpointing *bool `json:"checkpointing,omitempty"`
	// requireState: a pod whose state cannot come along is left where it is, as far as that is known before anything is done: a
	// StatefulSet's or Job's pod whose restore fails once its source has ended begins anew all the same. Default false: it begins
	// anew, and the status says so.
	// +optional
	RequireState bool `json:"requireState,omitempty"`
	// interval at which nodes are looked at for the selected pods. Left out: that of the controller (30s).
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="interval must be from 1s to 1h"
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	Interval *metav1.Duration `json:"interval,omitempty"`
	// resourcePressureThresholdPercent: of CPU or memory, above which a node is pressed for the selected pods. Left out:
	// that of the controller (85).
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	ResourcePressureThresholdPercent *int32 `json:"resourcePressureThresholdPercent,omitempty"`
	// limits on how many pods are on the move.
	// +optional
	Limits *MigrationLimits `json:"limits,omitempty"`
	// windows are when optional migrations may begin; protective ones always may. Empty: always.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []MigrationWindow `json:"windows,omitempty"`
	// rules in their order.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Rules []MigrationRule `json:"rules,omitempty"`
	// policyEngine is asked when the rules allow it. Left out: that of the controller, if it has one.
	// +optional
	PolicyEngine *PolicyEngine `json:"policyEngine,omitempty"`
}

// MigrationPolicyStatus is what became of the policy.
type MigrationPolicyStatus struct {
	// observedGeneration is the generation that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Ready (all expressions compile, windows and certificates are readable).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MigrationPolicy says which pods may be migrated when, how and how many at once. Of several that select a pod the most
// specific one holds (that with most labels and expressions in its selectors), then the first by name.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=mpol,categories=mainspring
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.strategy`
// +kubebuilder:printcolumn:name="Engine",type=string,JSONPath=`.spec.policyEngine.url`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MigrationPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the policy.
	Spec MigrationPolicySpec `json:"spec"`
	// status is what became of it.
	// +optional
	Status MigrationPolicyStatus `json:"status,omitempty"`
}

// MigrationPolicyList is a list of MigrationPolicies.
// +kubebuilder:object:root=true
type MigrationPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MigrationPolicy `json:"items"`
}
