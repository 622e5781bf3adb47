package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/keyfile"
	"j17/internal/core/worker"
	"j17/internal/edge/httpapi"
	"j17/internal/lang/compare"
	"j17/internal/lang/diag"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
)

// DevOptions configures a development server.
type DevOptions struct {
	Options
	// SpecFile is deployed to every environment at the start and whenever it changes; "" keeps what is deployed.
	SpecFile string
	// Deployed is called after every attempt to deploy the file. Without an error it was deployed, and the findings are
	// warnings; with one, the previous spec stays.
	Deployed func(DeployAttempt)
	// Observe, if not nil, is called after every request.
	Observe func(Exchange)
}

// Exchange describes one answered request.
type Exchange = httpapi.Exchange

// DeployAttempt is one attempt to deploy a spec file.
type DeployAttempt struct {
	File   string
	Source []byte
	Found  []diag.Diagnostic
	// Incompatible lists what existing events may not survive. A development server deploys the spec nevertheless.
	Incompatible []diag.Diagnostic
	// Compared reports that there was a previous spec, and Changes how the new one differs from it.
	Compared bool
	Changes  []compare.Change
	// Unreached names the listeners at addresses of this machine, which the server is not allowed to reach.
	Unreached []string
	Err       error
}

// ErrInvalidSpec is the error of a deployment whose findings explain it.
var ErrInvalidSpec = errors.New("the spec is not valid")

// KeyPair holds the tokens of one environment's API keys.
type KeyPair struct {
	Read  string `json:"read"`
	Write string `json:"write"`
}

// Ready describes how to use a development server.
type Ready struct {
	Ready    bool   `json:"ready"`
	Version  string `json:"version"`
	Instance struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"instance"`
	URLs       map[string]string           `json:"urls"`
	Keys       map[j17.Environment]KeyPair `json:"keys"`
	Operator   Login                       `json:"operator"`
	NodeSecret string                      `json:"node_secret"`
	// LoginLink signs in to the dashboard once, within an hour; "" if the dashboard is left out.
	LoginLink string `json:"login_link,omitempty"`
}

// Login holds an operator's credentials.
type Login struct {
	Email    string `json:"email"`
	Password string `json:"password"`
}

// credentials is the content of the file in which a development server keeps the secrets that it otherwise stores only
// as hashes.
type credentials struct {
	Instance string                      `json:"instance"`
	Operator Login                       `json:"operator"`
	Keys     map[j17.Environment]KeyPair `json:"keys"`
	// ClockOffset is by how much the clock has been moved, so that time does not run backward over a restart.
	ClockOffset time.Duration `json:"clock_offset,omitempty"`
	// URL is where the server last listened, so that clients in the same folder find it.
	URL string `json:"url,omitempty"`
	// Sign is what the server of this folder shows without a credential, so that clients can tell it from another
	// server at the same address.
	Sign string `json:"sign,omitempty"`
}

// DevAccess says how to reach the development server of a data folder.
type DevAccess struct {
	// URL is where it listens, or last listened; "" if that is not known.
	URL string
	// Sign is what the server of the folder shows in SignHeader at /livez.
	Sign string
	Keys map[j17.Environment]KeyPair
	// Operator may do everything on the server.
	Operator Login
}

// SignHeader is the header in which a development server identifies its data folder.
const SignHeader = httpapi.HeaderSign

// ReadDevAccess reads from a data folder how to reach its development server. It fails with fs.ErrNotExist if the
// folder does not belong to a development server.
func ReadDevAccess(dir string) (DevAccess, error) {
	file := filepath.Join(dir, credentialsFile)
	raw, err := os.ReadFile(file) //nolint:gosec // a fixed name in the folder that the caller names
	if err != nil {
		return DevAccess{}, err
	}
	var c credentials
	if err := json.Unmarshal(raw, &c); err != nil {
		return DevAccess{}, fmt.Errorf("%s is damaged: %w", file, err)
	}
	return DevAccess{URL: c.URL, Sign: c.Sign, Keys: c.Keys, Operator: c.Operator}, nil
}

const (
	devInstance     = "app"
	devEmail        = "dev@localhost.localdomain"
	devBaseDomain   = "localhost"
	devKeyPrefix    = "dev "
	credentialsFile = "dev.json"
	// maxClockOffset keeps a moved clock within the times that can be stored.
	maxClockOffset = 50 * year
	year           = 365 * 24 * time.Hour
	// watchInterval is how often the spec file is checked for changes.
	watchInterval = 250 * time.Millisecond
)

// Dev is a development server: one instance with its keys and operator, a spec that follows its file, and a clock that
// can be moved.
type Dev struct {
	server *Server
	clock  *clock.Movable
	steps  stepper
	// mu guards creds after the start.
	mu    sync.Mutex
	creds credentials
	api   *httpapi.API
	// specFile and deployed are those of the options.
	specFile string
	deployed func(DeployAttempt)
	// last is the content that was tried last.
	last []byte
}

// OpenDev opens a development server. It returns ErrInvalidSpec for an invalid spec file, after a call of
// DevOptions.Deployed.
func OpenDev(ctx context.Context, o DevOptions) (_ *Dev, err error) {
	d := &Dev{clock: clock.NewMovable(o.Clock), specFile: o.SpecFile, deployed: o.Deployed}
	gate := newTurnstile(o.Clock)
	o.Clock = d.clock
	o.BaseDomain = devBaseDomain
	if err := d.checkFile(); err != nil {
		return nil, err
	}

	d.server = newServer(o.Options)
	d.server.alone = true
	if err := d.server.start(ctx, nil); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.server.Close())
		}
	}()

	// Instance, keys and operator, with the current address.
	if err := d.server.restoreAll(ctx); err != nil {
		return nil, err
	}
	if err := d.openCredentials(ctx); err != nil {
		return nil, err
	}
	if url := d.URL(); d.creds.URL != url || d.creds.Sign == "" {
		d.creds.URL = url
		d.creds.Sign = cmp.Or(d.creds.Sign, rand.Text())
		if err := d.saveCredentials(); err != nil {
			return nil, err
		}
	}

	if d.specFile != "" {
		if err := d.deployFile(ctx); err != nil {
			return nil, err
		}
		for _, env := range j17.Environments() {
			d.server.early = append(d.server.early, j17.TenantOf(d.creds.Instance, env))
		}
	}

	d.steps = stepper{
		clock: d.clock, feed: d.server.store, works: d.server.timed(), move: d.keepOffset, gate: gate,
		busy: make(chan struct{}, 1),
	}
	d.api = d.server.api(httpapi.Options{
		DefaultInstance: d.creds.Instance, AdvanceClock: d.advance, AwaitWrite: gate.pass, Observe: o.Observe,
		Sign: d.creds.Sign,
	})
	return d, nil
}

// Run serves until the context ends.
func (d *Dev) Run(ctx context.Context) error { return d.server.run(ctx, d.api, d.watch) }

// URL returns the address of the public listener as clients on this machine use it.
func (d *Dev) URL() string {
	host, port, _ := net.SplitHostPort(d.server.public.Addr().String())
	if ip := net.ParseIP(host); ip != nil && (ip.IsUnspecified() || ip.Equal(net.IPv4(127, 0, 0, 1))) {
		host = devBaseDomain
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Spec returns the spec that is deployed to prod, or nil if there is none.
func (d *Dev) Spec() *spec.Compiled {
	return d.server.engine.Spec(j17.TenantOf(d.creds.Instance, j17.Prod))
}

// Close releases the server's resources.
func (d *Dev) Close() error { return d.server.Close() }

// Ready returns what a person or a program needs to use the server, except LoginLink.
func (d *Dev) Ready() Ready {
	r := Ready{
		Ready: true, Version: d.server.options.Version, Keys: d.creds.Keys, Operator: d.creds.Operator,
		NodeSecret: d.server.registry.Secrets.NodeSecret(),
	}
	name := devInstance
	if i, ok := d.server.registry.Instances.ByID(d.creds.Instance); ok {
		name = i.Name // an operator may have changed it
	}
	r.Instance.ID, r.Instance.Name = d.creds.Instance, name
	_, port, _ := net.SplitHostPort(d.server.public.Addr().String())
	at := func(label string) string { return "http://" + label + "." + devBaseDomain + ":" + port }
	r.URLs = map[string]string{
		"prod": at(name), "staging": at(name + "-staging"), "test": at(name + "-test"),
		"control": at("control"), "internal": "http://" + d.server.internal.Addr().String(),
	}
	if d.server.screen != nil {
		r.URLs["dashboard"] = at("control") + d.server.options.PublicPath + "/ui/"
	}
	return r
}

// LoginLink returns a link that signs the server's operator in to the dashboard, once, within an hour; "" if the
// dashboard is left out, or if that operator has been removed.
func (d *Dev) LoginLink(ctx context.Context) (string, error) {
	op, ok := d.server.registry.Operators.ByEmail(d.creds.Operator.Email)
	if !ok || d.server.screen == nil {
		return "", nil
	}
	code, _, err := d.server.registry.Sessions.NewLoginCode(ctx, op)
	return d.Ready().URLs["dashboard"] + "#login=" + code, err
}

// openCredentials makes the instance, its keys and its operator on the first start and reads them back later.
func (d *Dev) openCredentials(ctx context.Context) error {
	file := filepath.Join(d.server.options.Dir, credentialsFile)
	raw, err := os.ReadFile(file) //nolint:gosec // a fixed name in the data folder
	switch {
	case err == nil:
		if err := json.Unmarshal(raw, &d.creds); err != nil {
			return fmt.Errorf("%s is damaged: remove it together with the data folder, or restore it: %w", file, err)
		}
		if _, ok := d.server.registry.Instances.ByID(d.creds.Instance); ok {
			d.clock.Advance(d.creds.ClockOffset)
			return nil
		}
		return fmt.Errorf("%s names an instance that the store in the same folder does not have: they do not belong together", file)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := d.makeCredentials(ctx); err != nil {
		return err
	}
	// Hashing the operator's password took more memory than everything else in the server: return it now rather than
	// with the next collection, which comes after minutes on an idle server.
	debug.FreeOSMemory()
	return d.saveCredentials()
}

func (d *Dev) saveCredentials() error {
	raw, err := json.MarshalIndent(d.creds, "", "  ")
	if err != nil {
		return err
	}
	return keyfile.Write(filepath.Join(d.server.options.Dir, credentialsFile), append(raw, '\n'))
}

// keepOffset stores by how much the clock is about to be moved, so that it never shows an earlier time after a restart.
func (d *Dev) keepOffset(by time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.creds.ClockOffset += by
	if err := d.saveCredentials(); err != nil {
		d.creds.ClockOffset -= by
		return err
	}
	return nil
}

// advance moves the clock and does what becomes due on the way.
func (d *Dev) advance(ctx context.Context, by time.Duration) (time.Time, error) {
	d.mu.Lock()
	offset := d.creds.ClockOffset
	d.mu.Unlock()
	if offset+by > maxClockOffset {
		return time.Time{}, j17.Errorf(j17.CodeInvalidField, "The clock of this data folder can be moved by %d years in all. Start with an empty folder.", maxClockOffset/year).At("by")
	}
	return d.steps.advance(ctx, by)
}

// makeCredentials makes the credentials of a development server. A crash before the file is written leaves an instance
// without known keys; it gets new ones.
func (d *Dev) makeCredentials(ctx context.Context) error {
	// The instance, without the keys whose tokens were lost. A restored folder may have an instance of another name.
	registry := d.server.registry
	instance, ok := registry.Instances.ByName(devInstance)
	if !ok {
		instance, ok = oldest(registry.Instances.All())
	}
	if !ok {
		var err error
		if instance, err = registry.Instances.Create(ctx, devInstance); err != nil {
			return err
		}
	}
	for _, key := range registry.Keys.Of(instance.ID) { // of a lost credentials file
		if !strings.HasPrefix(key.Name, devKeyPrefix) {
			continue
		}
		if _, err := registry.Keys.Revoke(ctx, key.ID, d.clock.Now()); err != nil {
			return err
		}
	}

	// A pair of keys for each environment.
	d.creds = credentials{Instance: instance.ID, Keys: map[j17.Environment]KeyPair{}}
	for _, env := range j17.Environments() {
		var pair KeyPair
		for scope, into := range map[j17.Scope]*string{j17.ScopeRead: &pair.Read, j17.ScopeWrite: &pair.Write} {
			_, token, err := registry.Keys.Create(ctx, control.NewKey{
				Instance: instance.ID, Environment: env, Scope: scope, Name: devKeyPrefix + string(scope),
			})
			if err != nil {
				return err
			}
			*into = token
		}
		d.creds.Keys[env] = pair
	}

	// The operator, with a password that is known.
	d.creds.Operator = Login{Email: devEmail, Password: newPassword()}
	for _, op := range registry.Operators.All() {
		if op.Email == devEmail {
			return registry.Operators.SetPassword(ctx, op.ID, d.creds.Operator.Password)
		}
	}
	_, err := registry.Operators.Create(ctx, control.NewOperator{
		Email: devEmail, Password: d.creds.Operator.Password, Role: control.RolePlatformAdmin,
	})
	return err
}

// oldest returns the instance that was made first; ok is false if there is none.
func oldest(all []control.Instance) (first control.Instance, ok bool) {
	for i, instance := range all {
		if i == 0 || instance.CreatedAt.Before(first.CreatedAt) {
			first = instance
		}
	}
	return first, len(all) > 0
}

func newPassword() string {
	var b [15]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// checkFile reads and compiles the spec file, so that a missing or invalid one leaves no data folder behind.
func (d *Dev) checkFile() error {
	if d.specFile == "" {
		return nil
	}
	source, err := os.ReadFile(d.specFile)
	if err != nil {
		return fmt.Errorf("the spec file cannot be read: %w", err)
	}
	envelope, found := spec.Unwrap(source)
	if len(found) == 0 {
		var compiled *spec.Compiled
		if compiled, found = lint.Compile(envelope.Spec); compiled != nil {
			return nil
		}
	}
	if d.deployed != nil {
		d.deployed(DeployAttempt{File: d.specFile, Source: source, Found: found, Err: ErrInvalidSpec})
	}
	return ErrInvalidSpec
}

// deployFile deploys the spec file to every environment. The content is remembered whatever the outcome.
func (d *Dev) deployFile(ctx context.Context) error {
	source, err := os.ReadFile(d.specFile)
	if err != nil {
		return fmt.Errorf("the spec file cannot be read: %w", err)
	}
	d.last = source
	return d.deploySource(ctx, source)
}

func (d *Dev) deploySource(ctx context.Context, source []byte) error {
	// Compile it. An invalid one is reported and changes nothing.
	report := DeployAttempt{File: d.specFile, Source: source}
	var compiled *spec.Compiled
	envelope, found := spec.Unwrap(source)
	if len(found) == 0 {
		compiled, found = lint.Compile(envelope.Spec)
	}
	report.Found = found
	if compiled == nil {
		report.Err = ErrInvalidSpec
	}

	// Every environment gets it.
	before := d.Spec()
	for _, env := range j17.Environments() {
		if report.Err != nil {
			break
		}
		var r deploy.Result
		r, report.Err = d.server.deploy.Deploy(ctx, deploy.Request{
			Instance: d.creds.Instance, Environment: env, Source: envelope.Spec, Force: true, Lenient: true,
		})
		if report.Err != nil {
			break
		}

		// Missing code is reported for each environment, because it is uploaded to each. All other findings are the
		// same everywhere.
		for _, finding := range r.Found {
			if !slices.Contains(report.Found, finding) {
				report.Found = append(report.Found, finding)
			}
		}
		if env == j17.Prod {
			report.Incompatible = r.Incompatible
		}
	}
	slices.SortStableFunc(report.Found, func(a, b diag.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})

	// Differences, for the terminal.
	if report.Err == nil && before != nil {
		report.Compared, report.Changes = true, compare.Changes(before, compiled)
	}
	if report.Err == nil && !d.server.options.PrivateListeners {
		for _, name := range slices.Sorted(maps.Keys(compiled.Listeners)) {
			if compiled.Listeners[name].OnThisMachine() {
				report.Unreached = append(report.Unreached, name)
			}
		}
	}
	if d.deployed != nil {
		d.deployed(report)
	}
	return report.Err
}

// watch deploys the spec file whenever its content changes. Failures are reported and leave the previous spec in place.
func (d *Dev) watch(ctx context.Context) error {
	if d.specFile == "" {
		return nil
	}
	var seen os.FileInfo
	d.server.worker.Every(ctx,
		worker.Loop{Name: "spec_file", Every: watchInterval, Do: func(ctx context.Context) error {
			info, err := os.Stat(d.specFile)
			if errors.Is(err, fs.ErrNotExist) || err == nil && seen != nil && os.SameFile(seen, info) &&
				seen.ModTime().Equal(info.ModTime()) && seen.Size() == info.Size() {
				return nil // unchanged, or missing for a moment while an editor saves it
			}
			if err != nil {
				return err
			}
			seen = info
			source, err := os.ReadFile(d.specFile)
			if err != nil {
				seen = nil
				return err
			}
			if bytes.Equal(source, d.last) {
				return nil
			}
			d.last = source
			_ = d.deploySource(ctx, source) // reported by the callback
			return nil
		}})
	return nil
}
