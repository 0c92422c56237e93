package controllers

import (
	"time"

	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator"

	"github.com/mainspring-rt/mainspring/pkg/controllers/provisioning"
	rtstate "github.com/mainspring-rt/mainspring/pkg/state"
)

// calibration holds nodes back until their agents have measured.
func calibration(op *operator.Operator, provider cloudprovider.CloudProvider, store *rtstate.Store, timeout time.Duration) cloudprovider.NodeLifecycleHook {
	return provisioning.NewCalibration(provisioning.CalibrationDependencies{
		Clock: op.Clock, Client: op.GetClient(), Recorder: op.EventRecorder, Provider: provider, Store: store, Timeout: timeout,
	})
}
