package httpapi

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
)

// specHandlers deploy specs and show them.
type specHandlers struct {
	deploy   *deploy.Service
	registry *control.Registry
}

// routes deploy specs and show them where the environment is a parameter or a member of the body.
func (h *specHandlers) routes() []route {
	view, change := need{control.RightView, instance}, need{control.RightDeploy, instance}
	const path = "/api/instances/{instance_}/"
	return []route{
		{controlSite, post, path + "spec", operator, change, "spec.deploy", onWorker("spec", h.deploySpec), operation{
			id: "deploySpec", about: "Deploy a spec, or test a deployment",
			query: preparing(listingFailures(deploying()...)...),
			body:  file{typeJSON},
			gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{}, accepted: wire.SpecPrepared{},
			headers: specTag(),
		}},
		{
			controlSite, post, path + "spec/rollback", operator, change, "spec.rollback",
			onWorker("spec/rollback", h.rollBackSpec),
			operation{
				id: "rollBackSpec", about: "Roll back to an earlier version of the spec", query: listingFailures(trying()...),
				body: wire.Rollback{}, gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{},
				headers: specTag(),
			},
		},
		{
			controlSite, post, path + "spec/promote", operator, change, "spec.promote",
			onWorker("spec/promote", h.promoteSpec),
			operation{
				id: "promoteSpec", about: "Copy a spec from one environment to another", query: listingFailures(trying()...),
				body: wire.Promotion{}, gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{},
				headers: specTag(),
			},
		},
		{controlSite, get, path + "spec", operator, view, "", h.getSpec, operation{
			id: "getInstanceSpec", about: "Get the deployed spec", query: inEnvironment(), gives: wire.Spec{},
			tagged: true,
		}},
		{controlSite, get, path + "spec/history", operator, view, "", h.listSpecs, operation{
			id: "listInstanceSpecs", about: "List all versions of the spec", query: inEnvironment(paged()...),
			gives: rows{"versions", wire.Deployment{}},
		}},
		{controlSite, get, path + "spec/versions/{version}", operator, view, "", h.getSpecVersion, operation{
			id: "getInstanceSpecVersion", about: "Get a version of the spec", query: inEnvironment(),
			gives:  wire.Spec{},
			tagged: true,
		}},
		{controlSite, get, path + "spec/diff", operator, view, "", h.diffSpecs, operation{
			id: "diffInstanceSpecs", about: "Compare two versions of the spec",
			query: inEnvironment(compared()...), gives: wire.Differences{},
		}},
	}
}

// adminRoutes show the spec and what is to become one.
func (h *specHandlers) adminRoutes() []route {
	view, change := need{control.RightView, instance}, need{control.RightDeploy, instance}
	return []route{
		{0, get, "spec", operator, view, "", h.getSpec, operation{
			id: "getSpec", about: "Get the deployed spec", gives: wire.Spec{}, tagged: true,
		}},
		{0, get, "spec/history", operator, view, "", h.listSpecs, operation{
			id: "listSpecs", about: "List all versions of the spec", query: paged(),
			gives: rows{"versions", wire.Deployment{}},
		}},
		{0, get, "spec/versions/{version}", operator, view, "", h.getSpecVersion, operation{
			id: "getSpecVersion", about: "Get a version of the spec", gives: wire.Spec{}, tagged: true,
		}},
		{0, get, "spec/diff", operator, view, "", h.diffSpecs, operation{
			id: "diffSpecs", about: "Compare two versions of the spec", query: compared(),
			gives: wire.Differences{},
		}},
		{0, post, "spec/check", operator, view, "", h.checkSpec, operation{
			id: "checkSpec", about: "Find all that is wrong with the text of a spec, without storing or replaying anything",
			query: []parameter{{name: "format", kind: flag, about: "Whether to give the text in the form of 'j17 spec fmt' as well."}},
			body:  file{typeJSON}, gives: wire.SpecChecked{},
		}},
		{0, post, "spec/states", operator, need{control.RightRead, instance}, "", h.specStates, operation{
			id: "compareStates", about: "Get the state of an aggregate under the deployed spec and under another one",
			query: []parameter{{name: "key", about: "The aggregate, which has to be named: order:550e8400-e29b-41d4-a716-446655440000."}, moments()[1]},
			body:  file{typeJSON}, gives: wire.SpecStates{},
		}},
		{0, get, "spec/prepared", operator, view, "", h.getPreparedSpec, operation{
			id: "getPreparedSpec", about: "Get the spec that is deployed once its indexes are built",
			gives: wire.PreparedShown{},
		}},
		{0, remove, "spec/prepared", operator, change, "spec.cancel_prepared", h.cancelPreparedSpec, operation{
			id: "cancelPreparedSpec", about: "Cancel the preparation of a spec",
		}},
	}
}

// Limits of requests that deploy.
const (
	// maxSpecBody is the size of a spec with what may stand around it.
	maxSpecBody = spec.MaxSize + 64<<10
	// deployTime is how long a deployment may take: it may have to build code, or to replay many events.
	deployTime = 10 * time.Minute
	// maxFailures is how many stored events an answer lists at most that fail under a spec.
	maxFailures = 10_000
	// defaultAggregates is how many aggregates a dry run replays.
	defaultAggregates = 100
)

// inEnvironment sets the environment that the parameters name, prod where they do not, unless the path or the host has.
func (c *call) inEnvironment() {
	if c.env == "" {
		c.target(c.instance, cmp.Or(j17.Environment(c.query["environment"]), j17.Prod))
	}
}

// getSpec is GET spec: the deployed spec and how it came to be.
func (h *specHandlers) getSpec(c *call, w http.ResponseWriter) error {
	c.inEnvironment()
	s, err := h.currentSpec(c)
	if err != nil {
		return err
	}
	return h.spec(c, w, s)
}

// currentSpec returns the deployed spec. That there is none is no fault of the server here.
func (h *specHandlers) currentSpec(c *call) (control.Spec, error) {
	s, err := h.registry.Specs.Current(c.request.Context(), c.instance, c.env)
	if j17.CodeOf(err) == j17.CodeNoSpec {
		return s, j17.Errorf(j17.CodeNotFound, "No spec has been deployed to %s.", c.env.LongName())
	}
	return s, err
}

// spec answers with a version of a spec.
func (*specHandlers) spec(c *call, w http.ResponseWriter, s control.Spec) error {
	if known, err := c.known(w, `"`+s.Hash+`"`); known || err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, wire.Spec{Deployment: s.Wire(c.env), Spec: s.Source})
}

func (h *specHandlers) getSpecVersion(c *call, w http.ResponseWriter) error {
	c.inEnvironment()
	version, err := strconv.Atoi(c.request.PathValue("version"))
	if err != nil {
		return j17.Errorf(j17.CodeNotFound, "Versions of specs are numbered from 1 on.")
	}
	s, err := h.registry.Specs.Version(c.request.Context(), c.instance, c.env, version)
	if err != nil {
		return err
	}
	return h.spec(c, w, s)
}

func (h *specHandlers) listSpecs(c *call, w http.ResponseWriter) error {
	c.inEnvironment()
	l := c.listing()
	specs, err := h.registry.Specs.History(c.request.Context(), c.instance, c.env, l.offset, l.limit+1)
	return list(
		c, w, "versions", l, wire.Each(specs, func(s *control.Spec) wire.Deployment { return s.Wire(c.env) }), err,
	)
}

// diffSpecs is GET spec/diff: how a version differs from another one.
func (h *specHandlers) diffSpecs(c *call, w http.ResponseWriter) error {
	c.inEnvironment()
	to := c.query.number("to", 0)
	if to == 0 {
		current, err := h.currentSpec(c)
		if err != nil {
			return err
		}
		to = current.Version
	}
	d, err := h.deploy.Diff(c.request.Context(), c.instance, c.env, c.query.number("from", to-1), to)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, wire.Differences{
		From: d.From, To: d.To, Changes: deploy.Changes(d.Changes), Incompatible: d.Incompatible,
	})
}

// dryRunOf returns how many aggregates to replay, 0 for a real deployment.
func dryRunOf(c *call) (int, error) {
	if c.query.isSet("dry_run") {
		return c.query.number("aggregates", defaultAggregates), nil
	}
	if _, ok := c.query["aggregates"]; ok {
		return 0, j17.Errorf(j17.CodeInvalidParameter, "aggregates is for dry runs, with dry_run=true").At("aggregates")
	}
	return 0, nil
}

// deploySpec is POST spec: the spec itself, or an envelope around it.
func (h *specHandlers) deploySpec(c *call, w http.ResponseWriter) error {
	c.env = j17.Environment(c.query["environment"])
	r := deploy.Request{
		Instance: c.instance, Environment: c.env, Note: c.query["note"], Prepare: c.query.isSet("prepare"),
		Failures: c.query.number("failures", 0),
	}
	var err error
	if r.Aggregates, err = dryRunOf(c); err != nil {
		return err
	}
	if r.Prepare && r.Aggregates > 0 {
		return j17.Errorf(j17.CodeInvalidParameter, "prepare is for specs that are to count, and dry_run=true changes nothing").At("prepare")
	}
	if r.Base, err = h.base(c); err != nil {
		return err
	}
	body, err := c.readBody(w, maxSpecBody)
	if err != nil {
		return err
	}
	r.Source = []byte(body)
	c.allowTime(w, deployTime)
	result, err := h.deploy.Deploy(c.actorContext(), r)
	if err != nil {
		return err
	}
	return h.deployed(c, w, result)
}

// checkSpec is POST spec/check. A text that is no JSON, or empty, is a finding and no fault of the request.
func (h *specHandlers) checkSpec(c *call, w http.ResponseWriter) error {
	body, err := c.readBody(w, maxSpecBody)
	if err != nil && j17.CodeOf(err) != j17.CodeInvalidJSON {
		return err
	}
	checked, err := h.deploy.Check(c.request.Context(), []byte(body))
	if err != nil {
		return err
	}
	if c.query.isSet("format") {
		if formatted, broken := spec.Format([]byte(body)); len(broken) == 0 {
			checked.Formatted = string(formatted)
		}
	}
	return c.answer(w, http.StatusOK, checked)
}

// specStates is POST spec/states.
func (h *specHandlers) specStates(c *call, w http.ResponseWriter) error {
	key, ok := j17.ParseKey(c.query["key"])
	if !ok {
		return j17.Errorf(j17.CodeInvalidParameter, "key must be that of an aggregate, such as order:550e8400-e29b-41d4-a716-446655440000").At("key")
	}
	var length *uint64
	if _, ok := c.query["length"]; ok {
		length = new(uint64(c.query.number("length", 0)))
	}
	body, err := c.readBody(w, maxSpecBody)
	if err != nil {
		return err
	}
	states, err := h.deploy.States(c.request.Context(), c.instance, c.env, []byte(body), key, length)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, states)
}

// base reads If-Match: the hash of the spec that must be deployed, nil where any will do.
func (*specHandlers) base(c *call) (*string, error) {
	tags, err := entityTags(c.request.Header, "If-Match")
	if err != nil || tags == nil {
		return nil, err
	}
	if len(tags) != 1 || tags[0] == "*" || strings.HasPrefix(tags[0], "W/") {
		return nil, j17.Errorf(j17.CodeInvalidHeader, "If-Match must be one entity tag in double quotes, as GET spec shows it").At("if-match")
	}
	return new(strings.Trim(tags[0], `"`)), nil
}

// deployed answers with the outcome of a deployment or of a dry run.
func (h *specHandlers) deployed(c *call, w http.ResponseWriter, r deploy.Result) error {
	c.env = r.Environment
	warnings, incompatible := diag.FieldErrors(r.Warnings()), diag.FieldErrors(r.Breaks())
	if r.Replay != nil {
		incompatible = append(incompatible, r.Failures...)
		return c.answer(w, http.StatusOK, wire.DryRun{
			DryRun: true, Environment: r.Environment, Compatible: len(incompatible) == 0, Trial: r.Trial,
			Changes:      deploy.Changes(r.Changes),
			Incompatible: incompatible, Warnings: warnings, Replay: *r.Replay, Projections: r.Projections,
		})
	}
	if r.Prepared != nil {
		return c.answer(w, http.StatusAccepted, wire.SpecPrepared{
			Prepared: r.Prepared.Wire(c.env), Incompatible: incompatible, Warnings: warnings,
		})
	}
	status := http.StatusOK
	if r.Created {
		status = http.StatusCreated
	}
	w.Header().Set("Etag", `"`+r.Spec.Hash+`"`)
	return c.answer(w, status, wire.Deployed{
		Deployment: r.Spec.Wire(r.Environment), Created: r.Created, Incompatible: incompatible, Warnings: warnings,
		Trial: r.Trial,
	})
}

func (h *specHandlers) getPreparedSpec(c *call, w http.ResponseWriter) error {
	p, err := h.deploy.Prepared(c.request.Context(), c.tenant)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, wire.PreparedShown{Prepared: p.Wire(c.env)})
}

func (h *specHandlers) cancelPreparedSpec(c *call, w http.ResponseWriter) error {
	if err := h.deploy.CancelPrepared(c.request.Context(), c.tenant); err != nil {
		return err
	}
	c.record("spec.cancel_prepared", "", nil)
	return c.answer(w, http.StatusOK, nil)
}

func (h *specHandlers) rollBackSpec(c *call, w http.ResponseWriter) error {
	aggregates, err := dryRunOf(c)
	if err != nil {
		return err
	}
	var body wire.Rollback
	if err := c.decode(w, &body); err != nil {
		return err
	}
	env, err := environmentIn(body.Environment, "environment", j17.Prod)
	if err != nil {
		return err
	}
	c.env = env
	c.allowTime(w, deployTime)
	result, err := h.deploy.Rollback(c.actorContext(), deploy.Rollback{
		Instance: c.instance, Environment: env, Version: body.Version, Force: body.Force, Note: body.Note,
		Aggregates: aggregates, Failures: c.query.number("failures", 0),
	})
	if err != nil {
		return err
	}
	return h.deployed(c, w, result)
}

func (h *specHandlers) promoteSpec(c *call, w http.ResponseWriter) error {
	aggregates, err := dryRunOf(c)
	if err != nil {
		return err
	}
	var body wire.Promotion
	if err := c.decode(w, &body); err != nil {
		return err
	}
	from, err := environmentIn(body.From, "from", "")
	if err != nil {
		return err
	}
	to, err := environmentIn(body.To, "to", "")
	if err != nil {
		return err
	}
	c.env = to
	promotion := deploy.Promotion{
		Instance: c.instance, From: from, To: to, Force: body.Force, Note: body.Note, Aggregates: aggregates,
		Failures: c.query.number("failures", 0),
	}
	if body.Version != nil {
		if promotion.Version = *body.Version; promotion.Version < 1 {
			return j17.Errorf(j17.CodeInvalidField, "'version' must be the number of a version, from 1 on").At("version")
		}
	}
	c.allowTime(w, deployTime)
	result, err := h.deploy.Promote(c.actorContext(), promotion)
	if err != nil {
		return err
	}
	return h.deployed(c, w, result)
}

// environmentIn reads an environment that a body names; fallback, if not "", is meant where it does not.
func environmentIn(name, member string, fallback j17.Environment) (j17.Environment, error) {
	if name == "" && fallback != "" {
		return fallback, nil
	}
	env, err := j17.ParseEnvironment(name)
	if err != nil {
		return "", j17.Errorf(j17.CodeInvalidField, "'%s' must be prod, staging or test", member).At(member)
	}
	return env, nil
}
