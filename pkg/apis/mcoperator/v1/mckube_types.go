package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Finalizer keeps a deleted McKube until its containers have been given back to the ordinary
// scheduler.
const Finalizer = "mckube.mcoperator.sdv.com/finalizer"

// Criticality says who is raised and who gives way when a core is short (Vestal, RTSS 2007). Any
// letter case is accepted.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule=`self.matches('^(?i)(high|middle|low)$')`,message=`must be High, Middle or Low`
type Criticality string

// Criticalities in their usual spelling, lowest first.
const (
	CriticalityLow    Criticality = "Low"
	CriticalityMiddle Criticality = "Middle"
	CriticalityHigh   Criticality = "High"
)

// EscalationMode says what the kernel enforces before a container is escalated.
// +kubebuilder:validation:Enum=Elastic;Reserved
type EscalationMode string

const (
	// EscalationElastic starts the kernel's budget at runtime_low and raises it with a lead.
	EscalationElastic EscalationMode = "Elastic"
	// EscalationReserved gives the kernel runtime_hi from the start; runtime_low is an alarm threshold.
	EscalationReserved EscalationMode = "Reserved"
)

// AdmissionMode chooses the admission test.
// +kubebuilder:validation:Enum=Sound;Limited
type AdmissionMode string

const (
	// AdmissionSound charges runtime_hi to every container that may escalate (test T1): all of a core
	// may escalate at once.
	AdmissionSound AdmissionMode = "Sound"
	// AdmissionLimited charges runtime_low, on cores that keep an escalation reserve (test T1k with
	// k = 1): one container of a core may be escalated at a time.
	AdmissionLimited AdmissionMode = "Limited"
)

// MigrationKind is how the pod may be moved to another node.
// +kubebuilder:validation:Enum=Never;Restart;Checkpoint
type MigrationKind string

// Ways to move a pod.
const (
	MigrationNever      MigrationKind = "Never"
	MigrationRestart    MigrationKind = "Restart"
	MigrationCheckpoint MigrationKind = "Checkpoint"
)

// McKubeSpec gives one container of the governed pods a real-time budget.
// +kubebuilder:validation:XValidation:rule=`(has(self.podname) && size(self.podname) > 0) != has(self.selector)`,message=`exactly one of podname and selector must be given`,messageExpression=`has(self.selector) && has(self.podname) ? 'podname is "%s" and selector is given too; exactly one of podname and selector must be given'.format([self.podname]) : 'podname and selector are missing; exactly one of podname and selector must be given'`,fieldPath=".podname"
// +kubebuilder:validation:XValidation:rule=`has(self.podname) == has(oldSelf.podname) && (!has(self.podname) || self.podname == oldSelf.podname)`,message=`podname cannot be changed; create another McKube`,messageExpression=`'podname is "%s" and was "%s"; podname cannot be changed; create another McKube'.format([(has(self.podname) ? self.podname : ""), (has(oldSelf.podname) ? oldSelf.podname : "")])`,fieldPath=".podname"
// +kubebuilder:validation:XValidation:rule=`has(self.selector) == has(oldSelf.selector) && (!has(self.selector) || self.selector == oldSelf.selector)`,message=`selector cannot be changed; create another McKube`,fieldPath=".selector"
// +kubebuilder:validation:XValidation:rule=`has(self.container) == has(oldSelf.container) && (!has(self.container) || self.container == oldSelf.container)`,message=`container cannot be changed; create another McKube`,messageExpression=`'container is "%s" and was "%s"; container cannot be changed; create another McKube'.format([(has(self.container) ? self.container : ""), (has(oldSelf.container) ? oldSelf.container : "")])`,fieldPath=".container"
// +kubebuilder:validation:XValidation:rule=`!has(self.pressuredDeadlinesTotal) || has(self.pressuredDeadlinesPeriod)`,message=`pressuredDeadlinesTotal and pressuredDeadlinesPeriod must be given together`,messageExpression=`'pressuredDeadlinesPeriod is missing though pressuredDeadlinesTotal is %d; they must be given together'.format([self.pressuredDeadlinesTotal])`,fieldPath=".pressuredDeadlinesPeriod",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule=`!has(self.pressuredDeadlinesPeriod) || has(self.pressuredDeadlinesTotal)`,message=`pressuredDeadlinesPeriod and pressuredDeadlinesTotal must be given together`,messageExpression=`'pressuredDeadlinesTotal is missing though pressuredDeadlinesPeriod is %d; they must be given together'.format([self.pressuredDeadlinesPeriod])`,fieldPath=".pressuredDeadlinesTotal",reason=FieldValueRequired
type McKubeSpec struct {
	// podname is the pod it governs, in the McKube's namespace. Exactly one of podname and selector.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Podname string `json:"podname,omitempty"`
	// selector chooses the pods it governs, in the McKube's namespace, so that the pods of a
	// Deployment are governed and stay so when they are re-created. An empty selector is refused, and one with more than 64 labels, 32 expressions or
	// 4096 bytes of keys and values.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || size(self.matchLabels) <= 64",message="matchLabels has more than 64 labels",fieldPath=".matchLabels"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || size(self.matchExpressions) <= 32",message="matchExpressions has more than 32 expressions",fieldPath=".matchExpressions"
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="selector is empty; a selector must hold at least one label or expression"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// container is the container's name. It may be left out when the pod has one container.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Container string `json:"container,omitempty"`
	// criticality is High, Middle or Low. Default Low.
	// +optional
	// +kubebuilder:default=Low
	Criticality Criticality `json:"criticality,omitempty"`
	// node is the node the pod must run on. Left out, any; the controller then fills in where the
	// pod of a podname runs, which is an observation and binds no later pod.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
	// rtSettings is the budget. Left out, the McKube governs nothing yet.
	// +optional
	RTSettings *RTSettings `json:"rtSettings,omitempty"`
	// escalation says when the budget is raised and given back.
	// +optional
	Escalation *Escalation `json:"escalation,omitempty"`
	// migration says how the pod may be moved to another node.
	// +optional
	Migration *Migration `json:"migration,omitempty"`
	// pressuredDeadlinesTotal is the number of deadline misses, within pressuredDeadlinesPeriod,
	// from which the pod's node counts as pressured. 0, as MC-Kube's own manifests have it, means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	PressuredDeadlinesTotal *int32 `json:"pressuredDeadlinesTotal,omitempty"`
	// pressuredDeadlinesPeriod is the length of that window in seconds. 0 means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	PressuredDeadlinesPeriod *int32 `json:"pressuredDeadlinesPeriod,omitempty"`
}

// RTSettings is a server: at most a budget of CPU time in every period (constant bandwidth server,
// Abeni and Buttazzo, RTSS 1998). All times are in microseconds.
// +kubebuilder:validation:XValidation:rule=`self.runtime_low <= self.runtime_hi`,message=`runtime_low must be at most runtime_hi (equal: no escalation)`,messageExpression=`'runtime_low is %d; runtime_low must be at most runtime_hi, %d (equal: no escalation)'.format([self.runtime_low, self.runtime_hi])`,fieldPath=".runtime_low"
// +kubebuilder:validation:XValidation:rule=`self.period < 100 || self.period > 10000000 || self.runtime_hi < 1 || self.runtime_hi > 10000000 || self.runtime_hi * 100 <= self.period * 95`,message=`runtime_hi must be at most 95 % of period`,messageExpression=`'runtime_hi is %d; runtime_hi must be at most 95 %% of period, %d'.format([self.runtime_hi, self.period * 95 / 100])`,fieldPath=".runtime_hi"
// +kubebuilder:validation:XValidation:rule=`!has(self.deadline) || (self.runtime_hi <= self.deadline && self.deadline <= self.period)`,message=`deadline must be from runtime_hi to period`,messageExpression=`'deadline is %d; deadline must be from runtime_hi to period, %d to %d'.format([self.deadline, self.runtime_hi, self.period])`,fieldPath=".deadline"
// +kubebuilder:validation:XValidation:rule=`!has(self.levels) || self.levels.all(l, self.runtime_low < l.runtime && l.runtime < self.runtime_hi)`,message=`levels must lie between runtime_low and runtime_hi`,messageExpression=`'level %s is %d; levels must lie between runtime_low and runtime_hi, %d and %d'.format([self.levels.filter(l, !(self.runtime_low < l.runtime && l.runtime < self.runtime_hi))[0].name, self.levels.filter(l, !(self.runtime_low < l.runtime && l.runtime < self.runtime_hi))[0].runtime, self.runtime_low, self.runtime_hi])`,fieldPath=".levels"
type RTSettings struct {
	// period in microseconds, from 100 to 10 seconds.
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=10000000
	Period int64 `json:"period"`
	// deadline in microseconds from the start of the period, from runtime_hi to period. Default: period.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	Deadline *int64 `json:"deadline,omitempty"`
	// runtime_low is the initial budget in microseconds.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	RuntimeLow int64 `json:"runtime_low"`
	// runtime_hi is the budget after escalation in microseconds, at most 95 % of period.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	RuntimeHi int64 `json:"runtime_hi"`
	// levels are further budgets strictly between runtime_low and runtime_hi.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Levels []Level `json:"levels,omitempty"`
	// core is the set of preferred cores as a cpuset list, "2-3" or "0,2". A preference: the core
	// that was given is in status.allocatedCore. Left out, any core.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$')`,message=`core must be a cpuset list of numbers up to 9999, for example "2-3" or "0,2"`
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$') || self.split(',').all(r, !r.contains('-') || int(r.split('-')[0]) <= int(r.split('-')[1]))`,message=`core holds a range that runs backwards; write it as lower-higher, for example "2-3"`
	Core *string `json:"core,omitempty"`
	// coreSelection chooses among the cores of a node that admit the container, when none of the preferred does: Pack takes the one with the
	// least bandwidth left, Spread the one with the most, as MC-Kube does. Default: that of the node's label
	// mckube.io/core-selection, which a NodePool gives its nodes; without it Pack.
	// +optional
	CoreSelection CoreSelection `json:"coreSelection,omitempty"`
	// tasks are the periodic tasks inside the container. When given, the budget is tested against
	// them and advice is returned as warnings; nothing is refused.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tasks []Task `json:"tasks,omitempty"`
}

// CoreSelection is a rule by which a core is chosen.
// +kubebuilder:validation:Enum=Pack;Spread
type CoreSelection string

// Rules by which a core is chosen.
const (
	CoreSelectionPack   CoreSelection = "Pack"
	CoreSelectionSpread CoreSelection = "Spread"
)

// Level is a named budget between runtime_low and runtime_hi.
type Level struct {
	// name appears in status.currentRuntime.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')`,message=`the name of a level must be of lower-case letters, digits and inner dashes`
	// +kubebuilder:validation:XValidation:rule=`self != 'low' && self != 'hi'`,message=`the level names low and hi are those of runtime_low and runtime_hi`
	Name string `json:"name"`
	// runtime is the budget in microseconds.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	Runtime int64 `json:"runtime"`
}

// Task is a periodic or sporadic task inside the container. All times are in microseconds.
// +kubebuilder:validation:XValidation:rule=`!has(self.deadline) || (self.wcet <= self.deadline && self.deadline <= self.period)`,message=`deadline must be from wcet to period`,messageExpression=`'deadline is %d; deadline must be from wcet to period, %d to %d'.format([self.deadline, self.wcet, self.period])`,fieldPath=".deadline"
// +kubebuilder:validation:XValidation:rule=`self.wcet <= self.period`,message=`wcet must be at most its period`,messageExpression=`'wcet is %d; wcet must be at most its period, %d'.format([self.wcet, self.period])`,fieldPath=".wcet"
type Task struct {
	// period is the shortest time between two releases.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000000
	Period int64 `json:"period"`
	// wcet is the worst-case execution time.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000000
	WCET int64 `json:"wcet"`
	// deadline from the release. Default: period.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000000
	Deadline *int64 `json:"deadline,omitempty"`
}

// Escalation says when the budget is raised and given back.
// +kubebuilder:validation:XValidation:rule=`!has(self.overruns) || has(self.periods)`,message=`overruns and periods must be given together`,messageExpression=`'periods is missing though overruns is %d; they must be given together'.format([self.overruns])`,fieldPath=".periods",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule=`!has(self.periods) || has(self.overruns)`,message=`periods and overruns must be given together`,messageExpression=`'overruns is missing though periods is %d; they must be given together'.format([self.periods])`,fieldPath=".overruns",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule=`!has(self.overruns) || !has(self.periods) || self.overruns <= self.periods`,message=`overruns must be at most periods`,messageExpression=`'overruns is %d; overruns must be at most periods, %d'.format([self.overruns, self.periods])`,fieldPath=".overruns"
type Escalation struct {
	// mode is Elastic or Reserved. Default Elastic.
	// +optional
	// +kubebuilder:default=Elastic
	Mode EscalationMode `json:"mode,omitempty"`
	// admission is Sound or Limited. Default Sound.
	// +optional
	// +kubebuilder:default=Sound
	Admission AdmissionMode `json:"admission,omitempty"`
	// overruns in the last periods after which a container is escalated. Default 1 of 1 for High and
	// 2 of 10 for Middle and Low. Low is raised only where its core has room.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Overruns *int32 `json:"overruns,omitempty"`
	// periods is the length of that window in periods.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Periods *int32 `json:"periods,omitempty"`
	// recoveryDelay is how long the node's CPU must be calm before a budget that was raised for
	// pressure is given back. Default 5s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,8}([.][0-9]{1,9})?(ms|s)|[0-9]{1,5}([.][0-9]{1,9})?(m|h))+$') && duration(self) <= duration('24h')`,message=`recoveryDelay must be a duration of at most 24h, for example 5s or 1m30s`
	RecoveryDelay *metav1.Duration `json:"recoveryDelay,omitempty"`
	// dwell is how long a raised budget is kept at least; it doubles when the container escalates
	// again soon. Default: the longer of 20 periods and 1s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,8}([.][0-9]{1,9})?(ms|s)|[0-9]{1,5}([.][0-9]{1,9})?(m|h))+$') && duration(self) <= duration('24h')`,message=`dwell must be a duration of at most 24h, for example 5s or 1m30s`
	Dwell *metav1.Duration `json:"dwell,omitempty"`
}

// Migration says how the pod may be moved to another node.
type Migration struct {
	// policy is Never, Restart or Checkpoint. Default Restart.
	// +optional
	// +kubebuilder:default=Restart
	Policy MigrationKind `json:"policy,omitempty"`
}

// Conditions of a McKube.
const (
	// ConditionAdmitted: every governed container has a core that passes the admission test.
	ConditionAdmitted = "Admitted"
	// ConditionPlaced: every governed container that runs is assigned to a core.
	ConditionPlaced = "Placed"
	// ConditionConfigured: the agent has read back the budget and core that were asked for.
	ConditionConfigured = "Configured"
	// ConditionEscalated: a container runs above runtime_low.
	ConditionEscalated = "Escalated"
	// ConditionDegraded: a container was squeezed below what it was promised at runtime_low.
	ConditionDegraded = "Degraded"
	// ConditionPreempted: a container was moved off its core, or its pod evicted, for a more critical one.
	ConditionPreempted = "Preempted"
	// ConditionBudgetTooLow: runtime_low is below the granularity that the node measured, so the budget
	// cannot be enforced there.
	ConditionBudgetTooLow = "BudgetTooLow"
	// ConditionReady sums up: admitted, placed and configured, with an agent that is alive.
	ConditionReady = "Ready"
)

// McKubeStatus is what the controller and the agents observed.
type McKubeStatus struct {
	// observedGeneration is the generation that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// currentRuntime is "low", "hi" or the name of a level: the highest of the governed containers.
	// +optional
	CurrentRuntime string `json:"currentRuntime,omitempty"`
	// lastOverrunTime is when a governed container last used up its budget with work pending.
	// +optional
	LastOverrunTime *metav1.Time `json:"lastOverrunTime,omitempty"`
	// allocatedCore is the core of the first governed container, as a cpuset list.
	// +optional
	AllocatedCore string `json:"allocatedCore,omitempty"`
	// node is where the first governed container runs.
	// +optional
	Node string `json:"node,omitempty"`
	// backend is how budgets are enforced there: hcbs, rtgroup, fifo, deadline, cfs or simulated.
	// +optional
	Backend string `json:"backend,omitempty"`
	// overruns is the number of periods in which a governed container used up its budget with work pending.
	// +optional
	Overruns int64 `json:"overruns,omitempty"`
	// deadlineMisses is the number of jobs that ended after their deadline.
	// +optional
	DeadlineMisses int64 `json:"deadlineMisses,omitempty"`
	// pods is the number of pods governed.
	// +optional
	Pods int32 `json:"pods,omitempty"`
	// readyPods is the number of them that are admitted, placed and configured.
	// +optional
	ReadyPods int32 `json:"readyPods,omitempty"`
	// conditions: Admitted, Placed, Configured, Escalated, Degraded, Preempted, BudgetTooLow, Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// McKube gives containers a real-time budget on a core that can keep the promise.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=mckubes,shortName=mck,categories=mainspring
// +kubebuilder:printcolumn:name="Criticality",type=string,JSONPath=`.spec.criticality`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Core",type=string,JSONPath=`.status.allocatedCore`
// +kubebuilder:printcolumn:name="Runtime",type=string,JSONPath=`.status.currentRuntime`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Pod",type=string,priority=1,JSONPath=`.spec.podname`
// +kubebuilder:printcolumn:name="Period",type=integer,priority=1,JSONPath=`.spec.rtSettings.period`
// +kubebuilder:printcolumn:name="Low",type=integer,priority=1,JSONPath=`.spec.rtSettings.runtime_low`
// +kubebuilder:printcolumn:name="Hi",type=integer,priority=1,JSONPath=`.spec.rtSettings.runtime_hi`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type McKube struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec McKubeSpec `json:"spec"`
	// +optional
	Status McKubeStatus `json:"status,omitempty,omitzero"`
}

// McKubeList is a list of McKubes.
// +kubebuilder:object:root=true
type McKubeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []McKube `json:"items"`
}
