package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/policy"
)

// PathValidateMigrationPolicies is the webhook of MigrationPolicies.
const PathValidateMigrationPolicies = "/validate-migrationpolicies"

// validateMigrationPolicy refuses a policy that could not be used. What it needs is in the policy, so it answers at once.
func validateMigrationPolicy(_ context.Context, req admission.Request) admission.Response {
	p := &v1alpha1.MigrationPolicy{}
	if err := json.Unmarshal(req.Object.Raw, p); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding the MigrationPolicy: %w", err))
	}
	if _, errs := policy.Compile(&p.Spec); len(errs) > 0 {
		return invalid(req, errs.ToAggregate())
	}
	return admission.Allowed("")
}
