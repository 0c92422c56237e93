package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SecretRef names a Secret in the namespace that the controller reads Secrets from
// (`--inventory-secret-namespace`). What is in it never appears in a log, an Event or a status.
type SecretRef struct {
	// name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// RedfishAuth is how a client shows a Redfish service who it is.
// +kubebuilder:validation:Enum=Basic;Session
type RedfishAuth string

const (
	// RedfishBasic sends user name and password with every request.
	RedfishBasic RedfishAuth = "Basic"
	// RedfishSession opens a session for each operation and closes it again.
	RedfishSession RedfishAuth = "Session"
)

// RedfishPower switches a machine through the Redfish service of its management controller (DMTF DSP0266).
type RedfishPower struct {
	// endpoint is the address of the service, for example https://10.0.0.7 or https://bmc.example:8443.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^https://[A-Za-z0-9.\[\]:-]+/?$`
	Endpoint string `json:"endpoint"`
	// system is the Id of the ComputerSystem. Left out: the service must have exactly one.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	System string `json:"system,omitempty"`
	// auth is Basic or Session.
	// +kubebuilder:default=Basic
	Auth RedfishAuth `json:"auth,omitempty"`
	// credentials names a Secret with keys username and password.
	Credentials SecretRef `json:"credentials"`
	// ca names a Secret whose key ca.crt holds the certificates (PEM) that the service's is verified by. Left
	// out: those of the system. Certificates are always verified.
	// +optional
	CA *SecretRef `json:"ca,omitempty"`
	// shutdownGrace is how long a graceful shutdown may take before the power is cut; 0s cuts it at once. Default
	// 1m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('1h')",message="shutdownGrace must be at most 1h"
	ShutdownGrace *metav1.Duration `json:"shutdownGrace,omitempty"`
}

// WakeOnLANPower switches a machine on by a magic packet.
type WakeOnLANPower struct {
	// mac is the hardware address of the machine's network interface, for example 02:00:5e:10:00:07.
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:Pattern=`^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$`
	MAC string `json:"mac"`
	// address is where the packet is sent, a broadcast address of the machine's network or a relay's. Default
	// 255.255.255.255.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="address must be an IP address"
	Address string `json:"address,omitempty"`
	// port is the UDP port. Default 9.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// ExecPower switches a machine by a program beside the controller. It is called as
// `command <action> <machine> [args...]`, without a shell, with an empty environment but for PATH and the
// Secret's keys; action is on, off, restart or status. It must end with 0; for status it must print on or off.
type ExecPower struct {
	// command is the name of a file in the directory that the controller allows
	// (`--inventory-exec-directory`).
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._-]*$`
	Command string `json:"command"`
	// args follow the machine's name. They are no place for secrets.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=1024
	Args []string `json:"args,omitempty"`
	// secret names a Secret whose keys become environment variables of the program. Its keys must be names of
	// variables: A-Z, 0-9 and _.
	// +optional
	Secret *SecretRef `json:"secret,omitempty"`
}

// WebhookPower switches a machine through a service of the user's. It is sent
// `POST <url>` with `{"action": "on" | "off" | "restart" | "status", "machine": <name>}` and must answer 2xx;
// to status with `{"power": "on" | "off"}`.
type WebhookPower struct {
	// url of the service; https only.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https'",message="url must begin with https://"
	URL string `json:"url"`
	// token names a Secret whose key token is sent as bearer token.
	// +optional
	Token *SecretRef `json:"token,omitempty"`
	// ca names a Secret whose key ca.crt holds the certificates (PEM) that the service's is verified by. Left
	// out: those of the system. Certificates are always verified.
	// +optional
	CA *SecretRef `json:"ca,omitempty"`
}

// MachinePower is how a machine is switched: by exactly one of redfish, exec and webhook. Wake-on-LAN can only
// wake, so it stands beside one of them, which then switches off and tells the state.
// +kubebuilder:validation:XValidation:rule="[has(self.redfish), has(self.exec), has(self.webhook)].filter(x, x).size() == 1",message="exactly one of redfish, exec and webhook must be given; wakeOnLAN can only switch on, and needs one of them to switch off"
type MachinePower struct {
	// redfish switches through a management controller.
	// +optional
	Redfish *RedfishPower `json:"redfish,omitempty"`
	// exec switches by a program beside the controller.
	// +optional
	Exec *ExecPower `json:"exec,omitempty"`
	// webhook switches through a service.
	// +optional
	Webhook *WebhookPower `json:"webhook,omitempty"`
	// wakeOnLAN, where it is given, switches on in place of the other.
	// +optional
	WakeOnLAN *WakeOnLANPower `json:"wakeOnLAN,omitempty"`
}
