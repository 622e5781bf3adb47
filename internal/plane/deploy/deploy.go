// Package deploy is the only way in which a spec becomes the spec of an environment: it is compiled and compared with
// its predecessor, its custom code is found and loaded, it is stored with its history and handed to the engine. Uploads
// and deletions of blobs, which can change that code later, go through here too.
//
// The decisions behind it are in docs/internals/plane.md.
package deploy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"sync"
	"weak"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/lang/compare"
	"j17/internal/lang/diag"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
	"j17/internal/plane/blob"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
)

// Options configures a Service. All fields are required unless they say otherwise.
type Options struct {
	Registry *control.Registry
	Engine   *engine.Engine
	Blobs    *blob.Store
	// Modules compiles WebAssembly; nil if the server cannot.
	Modules Modules
	// Containers runs containers; nil if the operator has not enabled them.
	Containers Containers
	Clock      clock.Clock
	Logger     *slog.Logger
	// Store keeps the prepared spec, and Worker deploys it in the background; both are nil if none is prepared.
	Store  store.Sides
	Worker *worker.Kit
	// Settled, if not nil, is called before a deployment answers, when other deployments are possible again: it may
	// wait a little for work in the background.
	Settled func(ctx context.Context, t j17.Tenant)
}

// Service deploys specs to all environments of a server. It is safe for concurrent use; operations on one environment
// are serialized.
type Service struct {
	registry   *control.Registry
	engine     *engine.Engine
	blobs      *blob.Store
	modules    *moduleCache
	containers Containers
	clock      clock.Clock
	logger     *slog.Logger
	parts      []part.Part
	sides      store.Sides
	// waiting has the prepared specs; nil if none is prepared.
	waiting *worker.Queue
	worker  *worker.Kit
	// behind has the tenants with parts that have failed to adopt their spec; failed is signaled when one is added.
	behind sync.Map // of struct{} by j17.Tenant
	failed chan struct{}
	// asking is the work that the guards of a dry run may take.
	asking  int64
	settled func(ctx context.Context, t j17.Tenant)

	mu           sync.Mutex
	environments map[j17.Tenant]*environment
	// specs are the compiled specs in use, by the hash of their text: the environments of an instance mostly share one.
	// It keeps none of them alive.
	specs map[string]weak.Pointer[spec.Compiled]
}

// environment is what is deployed to one environment.
type environment struct {
	tenant   j17.Tenant
	instance string
	env      j17.Environment
	trace    trace

	// mu is held while the fields below change, and while something is compared with them.
	mu       sync.Mutex
	version  int            // that of the registry, 0 if nothing is deployed
	fence    store.Fence    // holds as long as the engine works with what the registry has
	compiled *spec.Compiled // nil if there is none, or none that this version of the program accepts
	code     *code
}

// New returns a service. Adopt must be called for an environment before it is used.
func New(o Options) *Service {
	if o.Settled == nil {
		o.Settled = func(context.Context, j17.Tenant) {}
	}
	s := &Service{
		registry: o.Registry, engine: o.Engine, blobs: o.Blobs, modules: newModuleCache(o.Modules),
		containers: o.Containers,
		clock:      o.Clock, logger: o.Logger, settled: o.Settled, sides: o.Store, worker: o.Worker,
		failed: make(chan struct{}, 1),
		asking: maxAsking, environments: map[j17.Tenant]*environment{}, specs: map[string]weak.Pointer[spec.Compiled]{},
	}
	if o.Store != nil && o.Worker != nil {
		s.waiting = o.Worker.Queue(worker.Work{
			Name: "prepared_specs", Store: o.Store, Space: preparedSpace, Do: s.carryOn, Lease: preparedLease,
			AtOnce: preparedAtOnce,
		})
	}
	return s
}

// environment returns the record of an environment, which may be new. The error is a *j17.Error of CodeNotFound.
func (s *Service) environment(instance string, env j17.Environment) (*environment, error) {
	if _, ok := s.registry.Instances.ByID(instance); !ok {
		return nil, j17.Errorf(j17.CodeNotFound, "There is no such instance.")
	}
	if _, err := j17.ParseEnvironment(string(env)); err != nil {
		return nil, j17.Errorf(j17.CodeInvalidField, "The environment must be prod, staging or test.").At("environment")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := j17.TenantOf(instance, env)
	e := s.environments[t]
	if e == nil {
		e = &environment{tenant: t, instance: instance, env: env, code: &code{}}
		e.trace.clock, e.trace.logger, e.trace.instance, e.trace.environment = s.clock, s.logger, instance, env
		s.environments[t] = e
	}
	return e, nil
}

// Request asks for the deployment of a spec.
type Request struct {
	// Instance is the instance's handle.
	Instance string
	// Environment is the target; "" leaves it to the envelope, whose default is prod.
	Environment j17.Environment
	// Source is the text of the spec, or of an envelope around it.
	Source []byte
	// Force deploys although stored events may not survive it. An envelope may ask for it as well.
	Force bool
	// Lenient deploys although custom code is missing or cannot be run; events that need it are refused until it is
	// there.
	Lenient bool
	// Base, if not nil, is the hash of the spec that must be deployed now; "" for none.
	Base *string
	// Note is kept in the history.
	Note string
	// Aggregates, if not 0, makes this a dry run: nothing changes, and the states of that many aggregates are compared.
	Aggregates int
	// Failures is how many stored events are listed at most that fail under the spec, 0 for 100.
	Failures int
	// Prepare builds what the spec needs before it is deployed. If that takes long, it goes on in the background.
	Prepare bool

	how  control.How
	from *control.SpecOrigin
	// ending are the writes that end the preparation of this deployment. They become durable together with the spec.
	ending []store.Side
}

// asked returns what the parts of the program are told of the request.
func (r *Request) asked() part.Asked {
	return part.Asked{Rows: r.Aggregates, Failures: r.Failures, Force: r.Force}
}

// Result is the result of a deployment.
type Result struct {
	Environment j17.Environment
	// Spec is the version that is deployed now, without its source; after a dry run the unchanged one.
	Spec control.Spec
	// Created is false if the spec was deployed already.
	Created bool
	// Compiled is the spec of the request.
	Compiled *spec.Compiled
	// Found holds the warnings about the spec, Incompatible the findings of the comparison with the previous one.
	Found        []diag.Diagnostic
	Incompatible []diag.Diagnostic
	// Changes are the differences from the previous spec; for the first spec, all that it declares.
	Changes []compare.Change
	// Replay is set by a dry run.
	Replay *wire.SpecReplay
	// Trial counts the stored events that were tried, nil if the spec reads all as the previous one does. Failures are
	// those that fail, set by a dry run.
	Trial    *wire.SpecTrial
	Failures []j17.FieldError
	// Projections are those whose results would change, set by a dry run.
	Projections []wire.ProjectionTrial
	// Prepared is set if the spec is not deployed yet, but prepared.
	Prepared *Prepared

	beside part.Beside
}

// Warnings returns the findings of the compiler and of the comparison that do not prevent a deployment.
func (r *Result) Warnings() []diag.Diagnostic {
	return slices.DeleteFunc(
		slices.Concat(r.Found, r.Incompatible), func(d diag.Diagnostic) bool { return d.Severity != diag.Warning },
	)
}

// Breaks returns what stored events may not survive.
func (r *Result) Breaks() []diag.Diagnostic { return errorsOf(r.Incompatible) }

// Deploy deploys a spec. Readers and writers see the old spec or the new one, never anything in between. Errors are
// *j17.Errors: CodeInvalidSpec and CodeIncompatibleSpec with all findings, CodePreconditionFailed if the deployed spec
// is not Base, CodeConflict if another deployment was first.
func (s *Service) Deploy(ctx context.Context, r Request) (Result, error) {
	// The environment may be in the body and in the path, which must not contradict each other.
	envelope, found := spec.Unwrap(r.Source)
	if len(found) > 0 {
		return Result{}, invalid(found)
	}
	r.Source, r.Force = envelope.Spec, r.Force || envelope.Force
	switch {
	case r.Environment == "" && envelope.Environment == "":
		r.Environment = j17.Prod
	case r.Environment == "":
		r.Environment = envelope.Environment
	case envelope.Environment != "" && envelope.Environment != r.Environment:
		return Result{}, j17.Errorf(j17.CodeInvalidField, "The body names the environment %s, the path %s. Leave one out.", envelope.Environment, r.Environment).At("environment")
	}
	if err := control.CheckSpecNote(r.Note); err != nil {
		return Result{}, err
	}

	// The environment and the spec, as far as they can be checked without the lock.
	e, err := s.environment(r.Instance, r.Environment)
	if err != nil {
		return Result{}, err
	}
	compiled, found := lint.Compile(r.Source)
	if compiled == nil {
		return Result{}, invalid(found)
	}
	if r.Aggregates > 0 {
		return s.dryRun(ctx, e, r, compiled, found)
	}
	if r.Prepare && s.prepares() {
		return s.begin(ctx, e, r, compiled, found)
	}

	// Others may post something that the spec rests on, or that rests on the spec, just when it is stored: then it is
	// checked again.
	for try := 1; ; try++ {
		result, err := s.deploy(ctx, e, r, compiled, found)
		if try < maxTries && overtaken(err) {
			continue
		}
		if err == nil {
			s.settled(context.WithoutCancel(ctx), e.tenant)
		}
		return result, err
	}
}

// maxTries is how often a deployment is tried.
const maxTries = 20

// overtaken reports whether a deployment has failed because of a concurrent one.
func overtaken(err error) bool {
	conflict, ok := errors.AsType[*store.SideConflict](err)
	return ok && conflict.Space != preparedSpace
}

// deploy checks a spec and deploys it, one at a time.
func (s *Service) deploy(
	ctx context.Context, e *environment, r Request, compiled *spec.Compiled, found []diag.Diagnostic,
) (Result, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	result, loaded, err := s.prepare(ctx, e, r, compiled, found)
	if err != nil {
		return Result{}, err
	}
	base := result.Spec.Version
	if err := s.preparing(ctx, e.tenant, e.compiled, compiled); err != nil {
		return Result{}, err
	}

	// Once it is written it is deployed, even if the client has gone.
	err = s.fill(ctx, e.tenant, decider.New(compiled, nil), r.asked(), func(filled *part.Filled) error {
		if len(filled.Found) > 0 && !r.Force {
			return sharedValues(filled.Found, e.env)
		}
		result.Incompatible = append(result.Incompatible, filled.Found...)
		result.Trial = filled.Tried
		var err error
		result.Spec, err = s.registry.Specs.Put(context.WithoutCancel(ctx), control.Deployment{
			Instance: e.instance, Environment: e.env, Source: compiled.Source, Base: base,
			How: r.how, From: r.from, Forced: len(result.Breaks()) > 0, Note: r.Note,
			Dropped: slices.Concat(result.beside.Invalid, result.beside.Taken),
			Sides:   slices.Concat(result.beside.Sides, filled.Sides, r.ending), Fences: result.beside.Fences,
		})
		return err
	})
	if err != nil {
		return Result{}, err
	}

	// Readers and writers see it from here on.
	result.Created = result.Spec.Version != base
	result.Spec.Source = nil
	s.swap(e, &result.Spec, compiled, loaded)
	s.adopted(context.WithoutCancel(ctx), e.tenant)
	s.share(result.Spec.Hash, compiled)
	return result, nil
}

// prepare compares a spec with the deployed one and loads its custom code. The Spec of the result is the deployed one.
// The caller holds e.mu.
func (s *Service) prepare(
	ctx context.Context, e *environment, r Request, compiled *spec.Compiled, found []diag.Diagnostic,
) (Result, *code, error) {
	current, err := s.registry.Specs.Current(ctx, e.instance, e.env)
	if err != nil && j17.CodeOf(err) != j17.CodeNoSpec {
		return Result{}, nil, err
	}
	if r.Base != nil && *r.Base != current.Hash {
		return Result{}, nil, j17.Errorf(j17.CodePreconditionFailed, "Another spec is deployed to %s than the one that If-Match names. Compare with that one and deploy again.", e.env.LongName())
	}
	if current.Version != e.version || current.Fence != e.fence { // deployed by another server of the same store
		if err := s.adopt(ctx, e, &current); err != nil {
			return Result{}, nil, err
		}
	}
	result := Result{Environment: e.env, Spec: current, Compiled: compiled, Found: found}
	result.Spec.Source = nil
	if e.compiled != nil {
		result.Incompatible = compare.Compatibility(e.compiled, compiled)
	}
	if result.beside, err = s.beside(ctx, e.tenant, compiled); err != nil {
		return Result{}, nil, err
	}
	result.Incompatible = append(result.Incompatible, result.beside.Found...)
	// In the first spec everything is new.
	result.Changes = compare.Changes(cmp.Or(e.compiled, &spec.Compiled{}), compiled)
	if dry := r.Aggregates > 0; len(result.Breaks()) > 0 && !r.Force && !dry {
		return Result{}, nil, incompatible(result.Incompatible, result.beside.Invalid, e.env)
	}
	loaded, missing := s.load(ctx, e, compiled, nil, maxModules)
	if err := ctx.Err(); err != nil {
		return Result{}, nil, err
	}
	if len(missing) > 0 && (!r.Lenient || loaded.large) {
		return Result{}, nil, invalid(missing)
	}
	result.Found = append(result.Found, asWarnings(missing)...)
	return result, loaded, nil
}

// dryRun reports what a deployment would find and change, and changes nothing. Deployments may happen meanwhile.
func (s *Service) dryRun(
	ctx context.Context, e *environment, r Request, compiled *spec.Compiled, found []diag.Diagnostic,
) (Result, error) {
	e.mu.Lock()
	result, loaded, err := s.prepare(ctx, e, r, compiled, found)
	before := deployed{e.compiled, e.code}
	e.mu.Unlock()
	if err != nil {
		return Result{}, err
	}
	if result.Replay, err = s.replay(
		ctx, e.tenant, before, deployed{compiled, loaded}, result.Changes, r.Aggregates,
	); err != nil {
		return result, err
	}
	err = s.try(ctx, e.tenant, decider.New(compiled, loaded.functions), r.asked(), &result)
	return result, err
}

// deployed is a spec with its custom code.
type deployed struct {
	compiled *spec.Compiled // nil for none
	code     *code
}

// swap makes the engine work with a spec and its code. The caller holds e.mu.
func (s *Service) swap(e *environment, stored *control.Spec, compiled *spec.Compiled, loaded *code) {
	s.engine.Deploy(e.tenant, compiled, loaded.functions, stored.Fence)
	e.version, e.fence, e.compiled, e.code = stored.Version, stored.Fence, compiled, loaded
}

// share keeps a compiled spec for other environments with the same text.
func (s *Service) share(hash string, compiled *spec.Compiled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.specs[hash] = weak.Make(compiled)
	runtime.AddCleanup(compiled, s.forgetSpec, hash)
}

// forgetSpec removes a compiled spec that is no longer in use.
func (s *Service) forgetSpec(hash string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.specs[hash].Value() == nil {
		delete(s.specs, hash)
	}
}

// compile compiles a stored spec, or returns the one that another environment has compiled from the same text.
func (s *Service) compile(stored *control.Spec) (*spec.Compiled, []diag.Diagnostic) {
	s.mu.Lock()
	shared := s.specs[stored.Hash].Value()
	s.mu.Unlock()
	if shared != nil && bytes.Equal(shared.Source, stored.Source) {
		return shared, nil
	}
	compiled, found := spec.CompileStored(stored.Source)
	if compiled != nil {
		s.share(stored.Hash, compiled)
	}
	return compiled, found
}

// adopt hands a stored spec to the engine. The caller holds e.mu.
func (s *Service) adopt(ctx context.Context, e *environment, stored *control.Spec) error {
	where := []slog.Attr{
		slog.String("instance", e.instance), slog.String("environment", string(e.env)),
		slog.Int("version", stored.Version),
	}
	compiled, found := s.compile(stored)
	if compiled == nil {
		s.logger.LogAttrs(ctx, slog.LevelError, "a deployed spec is not valid for this version of the program; deploy a corrected one",
			append(where, slog.String("first_error", first(found)))...)
		s.engine.Undeploy(e.tenant) // the previous spec must not act as the deployed one
		e.version, e.fence, e.compiled, e.code = stored.Version, stored.Fence, nil, &code{}
		return nil
	}
	// Code that was deployed once is loaded, however much memory it takes.
	loaded, missing := s.load(ctx, e, compiled, nil, math.MaxInt64)
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, m := range missing {
		s.logger.LogAttrs(ctx, slog.LevelError, "custom code of a deployed spec cannot be loaded; events that need it are refused",
			append(where, slog.String("pointer", string(m.Pointer)), slog.String("error", m.Message))...)
	}
	s.swap(e, stored, compiled, loaded)
	s.adopted(ctx, e.tenant)
	return nil
}

// first returns the first error among findings.
func first(found []diag.Diagnostic) string {
	for _, d := range found {
		if d.Severity == diag.Error {
			return string(d.Pointer) + ": " + d.Message
		}
	}
	return ""
}

// Spec returns the spec that is deployed to an environment, nil if there is none.
func (s *Service) Spec(instance string, env j17.Environment) *spec.Compiled {
	return s.engine.Spec(j17.TenantOf(instance, env))
}

// isNotFound reports whether an error says that something does not exist.
func isNotFound(err error) bool {
	e, ok := errors.AsType[*j17.Error](err)
	return ok && e.Code == j17.CodeNotFound
}
