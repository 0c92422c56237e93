package webhooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

const (
	// templateName is the webhook of labelled pods, which the generated ones are shaped like.
	templateName = "pods.mutate.mckube.io"
	// governedSuffix makes the name of the generated configuration.
	governedSuffix = "-governed"
	// recheck is how often the configurations are looked at when nothing has happened.
	recheck = time.Minute
	// patience bounds one reconciliation.
	patience = 30 * time.Second
	// reasonLabelNeeded is the reason of Events on McKubes for which there is no entry.
	reasonLabelNeeded = "LabelNeeded"
	// reasonSecretMissing is the reason of Events on the Secret that was deleted.
	reasonSecretMissing = "WebhookSecretMissing"
)

// Configurations keeps the webhook configurations true: the certificate in their Secret, the bundle
// that it is verified with, the secret path at which the API server calls them, an entry for the pods that McKubes govern and that have no label, and one for
// what owners make in the place of pods that are migrated. It runs on the leader only.
type Configurations struct {
	// Reader reads the API itself, Cache McKubes and PodMigrations from informers.
	Reader, Cache client.Reader
	Client        client.Client
	Recorder      record.EventRecorder
	Clock         clock.PassiveClock
	Options       Options
	// missing: the Secret is gone and not ours to create, and this was told.
	missing bool
	// tokenMade is when this process made the token of the paths; zero: it made none.
	tokenMade time.Time
}

// Reconcile looks at everything; there is nothing to tell requests apart by.
func (c *Configurations) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	secret, err := c.certificate(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	c.tell(ctx, secret)
	next := reconcile.Result{RequeueAfter: min(recheck, c.Options.Authority.Validity/20)}
	var bundle []byte // none: cert-manager has not filled the Secret yet, or it is gone
	if len(secret.Data[certs.KeyCA]) > 0 {
		bundle = certs.Bundle(secret.Data)
	}
	mutating, err := c.inject(ctx, bundle)
	if mutating == nil {
		return reconcile.Result{}, err
	}
	return next, errors.Join(err, c.govern(ctx, mutating))
}

// certificate reads the Secret and, where that is ours to do, renews what is in it. The Secret is
// created where no chart has; a controller that may not do that, as with the chart's rights,
// gets one without UID and data.
func (c *Configurations) certificate(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	key := types.NamespacedName{Namespace: c.Options.Namespace, Name: c.Options.Secret}
	err := c.Reader.Get(ctx, key, secret)
	if missing := apierrors.IsNotFound(err); err != nil && !missing || missing && !c.Options.Rotate {
		return nil, fmt.Errorf("getting the webhooks' Secret: %w", err)
	} else if missing {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Type: corev1.SecretTypeOpaque}
	}
	if !c.Options.Rotate {
		return secret, nil
	}
	data, changed, err := c.Options.Authority.Renew(secret.Data, c.Clock.Now())
	if err != nil || !changed {
		return secret, err
	}
	wanted := secret.DeepCopy()
	wanted.Data = data
	if secret.UID == "" {
		err = c.Client.Create(ctx, wanted)
	} else {
		err = c.Client.Update(ctx, wanted)
	}
	if apierrors.IsForbidden(err) && secret.UID == "" {
		return secret, nil
	}
	if err != nil {
		return nil, fmt.Errorf("storing the webhooks' certificate: %w", err)
	}
	return wanted, nil
}

// tell says once that the Secret is gone, or back. RBAC cannot limit a create to one name, so the chart does not allow
// any: the replicas go on with the certificate in their memory, and the user who deleted the Secret has to bring it
// back.
func (c *Configurations) tell(ctx context.Context, secret *corev1.Secret) {
	was := c.missing
	c.missing = secret.UID == "" && len(secret.Data) == 0
	log := log.FromContext(ctx).WithValues("Secret", client.ObjectKeyFromObject(secret))
	if !c.missing {
		secretMissing.Set(0)
		if was {
			log.Info("The webhooks' Secret is back")
		}
		return
	}
	secretMissing.Set(1)
	if was {
		return
	}
	log.Info("The webhooks' Secret is gone and the controller may not create it: replicas that run keep the certificate they have, one that starts gets none. helm upgrade or kubectl create secret generic brings it back")
	c.Recorder.Eventf(secret, corev1.EventTypeWarning, reasonSecretMissing,
		"The webhooks' Secret is gone: replicas that run keep the certificate they have, one that starts gets none. To bring it back: kubectl create secret generic %s -n %s", secret.Name, secret.Namespace)
}

// inject writes the bundle and the secret paths into the configurations of the chart, the validating one first: the replicas read the token
// there. It returns the mutating configuration, or nil where that could not be written.
func (c *Configurations) inject(ctx context.Context, bundle []byte) (*admissionv1.MutatingWebhookConfiguration, error) {
	mutating, validating := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	for _, config := range []client.Object{mutating, validating} {
		if err := c.Reader.Get(ctx, types.NamespacedName{Name: c.Options.Configurations}, config); err != nil {
			return nil, fmt.Errorf("getting the webhook configurations: %w", err)
		}
	}
	in := injection{token: c.token(append(validatingClients(validating), mutatingClients(mutating)...)), bundle: bundle}
	for i := range validating.Webhooks {
		in.into(validating.Webhooks[i].Name, &validating.Webhooks[i].ClientConfig)
	}
	if err := c.update(ctx, validating, in.changed); err != nil {
		return nil, err
	}
	in.changed = false
	for i := range mutating.Webhooks {
		in.into(mutating.Webhooks[i].Name, &mutating.Webhooks[i].ClientConfig)
	}
	if err := c.update(ctx, mutating, in.changed); err != nil {
		return nil, err
	}
	return mutating, errors.Join(in.errs...)
}

// token returns the one that the configurations have, or a new one where it is old. This process made it, or it replaces that of the leader before.
func (c *Configurations) token(configs []admissionv1.WebhookClientConfig) string {
	now := c.Clock.Now()
	if token := tokenIn(configs...); token != "" && !c.tokenMade.IsZero() && now.Sub(c.tokenMade) < tokenLife {
		return token
	}
	c.tokenMade = now
	return newToken()
}

// injection is what each webhook of a configuration is given.
type injection struct {
	token   string
	bundle  []byte
	changed bool
	errs    []error
}

// into gives it to the webhook of the name. A webhook that this version has no handler for is left alone.
func (in *injection) into(name string, config *admissionv1.WebhookClientConfig) {
	path, ok := handlerPaths[name]
	if !ok {
		in.errs = append(in.errs, fmt.Errorf("webhook %s has no handler in this version", name))
		return
	}
	in.changed = setPath(config, "/"+in.token+path) || in.changed
	if len(in.bundle) > 0 && !bytes.Equal(config.CABundle, in.bundle) {
		config.CABundle, in.changed = in.bundle, true
	}
}

func mutatingClients(c *admissionv1.MutatingWebhookConfiguration) (list []admissionv1.WebhookClientConfig) {
	for _, w := range c.Webhooks {
		list = append(list, w.ClientConfig)
	}
	return list
}

func validatingClients(c *admissionv1.ValidatingWebhookConfiguration) (list []admissionv1.WebhookClientConfig) {
	for _, w := range c.Webhooks {
		list = append(list, w.ClientConfig)
	}
	return list
}

// govern writes the generated configuration from that of the labelled pods.
func (c *Configurations) govern(ctx context.Context, labelled *admissionv1.MutatingWebhookConfiguration) error {
	at := slices.IndexFunc(labelled.Webhooks, func(w admissionv1.MutatingWebhook) bool { return w.Name == templateName })
	if at < 0 {
		return fmt.Errorf("reading the mutating webhooks: %s has no webhook %s", labelled.Name, templateName)
	}
	list := &mcv1.McKubeList{}
	if err := c.Cache.List(ctx, list); err != nil {
		return fmt.Errorf("listing McKubes: %w", err)
	}
	mckubes := make([]*mcv1.McKube, len(list.Items))
	for i := range list.Items {
		mckubes[i] = &list.Items[i]
	}
	migrations := &v1alpha1.PodMigrationList{}
	if err := c.Cache.List(ctx, migrations); err != nil {
		return fmt.Errorf("listing PodMigrations: %w", err)
	}
	entries, without, tooLong := Entries(labelled.Webhooks[at], mckubes)
	if e, any := replacementsEntry(labelled.Webhooks[at], migrations.Items); any {
		entries = append(entries, e)
	}
	leftOut.Set(float64(len(without) + len(tooLong)))
	for _, m := range without {
		c.Recorder.Eventf(m, corev1.EventTypeWarning, reasonLabelNeeded,
			"There are more than %d different selectors, and namespace %s has had its turns: only pods with label %s get their core when they are created", maxEntries, m.Namespace, mcv1.LabelRT)
	}
	for _, m := range tooLong {
		c.Recorder.Eventf(m, corev1.EventTypeWarning, reasonLabelNeeded,
			"The selector has %d bytes of keys and values; with more than %d, only pods with label %s get their core when they are created", selectorBytes(m.Spec.Selector), maxEntryBytes, mcv1.LabelRT)
	}
	config := &admissionv1.MutatingWebhookConfiguration{}
	if err := c.Reader.Get(ctx, types.NamespacedName{Name: c.Options.Configurations + governedSuffix}, config); err != nil {
		return fmt.Errorf("getting the webhooks of governed pods: %w", err)
	}
	changed := !equality.Semantic.DeepEqual(config.Webhooks, entries)
	config.Webhooks = entries
	return c.update(ctx, config, changed)
}

func (c *Configurations) update(ctx context.Context, config client.Object, changed bool) error {
	if !changed {
		return nil
	}
	if err := c.Client.Update(ctx, config); err != nil {
		return fmt.Errorf("updating webhook configuration %s: %w", config.GetName(), err)
	}
	return nil
}
