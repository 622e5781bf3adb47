package httpapi

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/control"
	"j17/internal/deploy"
	"j17/internal/spec"
	"j17/internal/value"
)

// Limits of requests that deploy.
const (
	// maxSpecBody is the size of a spec with what may stand around it.
	maxSpecBody = spec.MaxSize + 64<<10
	// deployTime is how long a deployment may take: it may have to build code, or to replay many events.
	deployTime = 10 * time.Minute
	// defaultAggregates is how many aggregates a dry run replays.
	defaultAggregates = 100
)

// specRoutes is the table of deployments on the control host, where the environment is a parameter or a member of the body.
func (a *API) specRoutes() []route {
	row := func(method, pattern string, need control.Right, handle func(*call, http.ResponseWriter) error, action string) route {
		return route{controlSite, method, "/api/instances/{instance_}/" + pattern, operator, auditedHere(action, func(c *call, w http.ResponseWriter) error {
			id := c.request.PathValue("instance_")
			if err := c.needRight(id, need); err != nil {
				return err
			}
			c.instance = id
			if c.request.Method == http.MethodPost {
				return c.forwarded(w, "/internal/control/instances/"+id+"/"+pattern, handle)
			}
			return handle(c, w)
		})}
	}
	return []route{
		row(http.MethodPost, "spec", control.RightDeploy, (*call).deploySpec, "spec.deploy"),
		row(http.MethodPost, "spec/rollback", control.RightDeploy, (*call).rollBackSpec, "spec.rollback"),
		row(http.MethodPost, "spec/promote", control.RightDeploy, (*call).promoteSpec, "spec.promote"),
		row(http.MethodGet, "spec", control.RightView, (*call).getSpec, ""),
		row(http.MethodGet, "spec/history", control.RightView, (*call).listSpecs, ""),
		row(http.MethodGet, "spec/versions/{version}", control.RightView, (*call).getSpecVersion, ""),
		row(http.MethodGet, "spec/diff", control.RightView, (*call).diffSpecs, ""),
		row(http.MethodGet, "projections", control.RightView, (*call).listProjections, ""),
	}
}

// specAdminRoutes is the table of what can be read about the spec of an environment where the path names that.
func (a *API) specAdminRoutes() []adminRoute {
	return []adminRoute{
		{http.MethodGet, "spec", control.RightView, (*call).getSpec, ""},
		{http.MethodGet, "spec/history", control.RightView, (*call).listSpecs, ""},
		{http.MethodGet, "spec/versions/{version}", control.RightView, (*call).getSpecVersion, ""},
		{http.MethodGet, "spec/diff", control.RightView, (*call).diffSpecs, ""},
	}
}

// deploymentRow is a version of a spec as people see it.
type deploymentRow struct {
	control.Spec
	Environment j17.Environment `json:"environment"`
}

func row(s control.Spec, env j17.Environment) deploymentRow {
	s.Source = nil
	return deploymentRow{s, env}
}

// environment sets the environment that the parameters name, prod where they do not, unless the path or the host has.
func (c *call) environment(p map[string]string) error {
	name, ok := p["environment"]
	switch {
	case c.env != "" && ok:
		return j17.Errorf(j17.CodeInvalidParameter, "The path names the environment already").At("environment")
	case c.env != "":
		return nil
	case !ok:
		name = string(j17.Prod)
	}
	env, err := j17.ParseEnvironment(name)
	if err != nil {
		return j17.Errorf(j17.CodeInvalidParameter, "environment must be prod, staging or test").At("environment")
	}
	c.target(c.instance, env)
	return nil
}

// getSpec is GET spec: the deployed spec and how it came to be.
func (c *call) getSpec(w http.ResponseWriter) error {
	p, err := parameters(c.request, "environment")
	if err == nil {
		err = c.environment(p)
	}
	if err != nil {
		return err
	}
	s, err := c.currentSpec()
	if err != nil {
		return err
	}
	return c.spec(w, s)
}

// currentSpec returns the deployed spec. That there is none is no fault of the server here.
func (c *call) currentSpec() (control.Spec, error) {
	s, err := c.api.Registry.Specs.Current(c.request.Context(), c.instance, c.env)
	if j17.CodeOf(err) == j17.CodeNoSpec {
		return s, j17.Errorf(j17.CodeNotFound, "No spec has been deployed to %s.", c.env.LongName())
	}
	return s, err
}

// spec answers with a version of a spec.
func (c *call) spec(w http.ResponseWriter, s control.Spec) error {
	if known, err := c.known(w, `"`+s.Hash+`"`); known || err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil, member{"deployment", row(s, c.env)}, member{"spec", json.RawMessage(s.Source)})
}

// listProjections is GET projections: those that the deployed spec declares, in its order; none where there is no spec.
func (c *call) listProjections(w http.ResponseWriter) error {
	p, err := parameters(c.request, "environment")
	if err == nil {
		err = c.environment(p)
	}
	if err != nil {
		return err
	}
	s, err := c.api.Registry.Specs.Current(c.request.Context(), c.instance, c.env)
	if err != nil && j17.CodeOf(err) != j17.CodeNoSpec {
		return err
	}
	type projectionRow struct {
		Name       string          `json:"name"`
		Projection json.RawMessage `json:"projection"`
	}
	rows := []projectionRow{}
	if declared, err := value.Parse(s.Source); err == nil {
		for _, m := range declared.Get("projections").Members() {
			rows = append(rows, projectionRow{m.Key, m.Value.AppendJSON(nil)})
		}
	}
	return c.answer(w, http.StatusOK, struct {
		Environment j17.Environment `json:"environment"`
	}{c.env}, member{"projections", rows})
}

// getSpecVersion is GET spec/versions/{version}.
func (c *call) getSpecVersion(w http.ResponseWriter) error {
	p, err := parameters(c.request, "environment")
	if err == nil {
		err = c.environment(p)
	}
	if err != nil {
		return err
	}
	version, err := strconv.Atoi(c.request.PathValue("version"))
	if err != nil {
		return j17.Errorf(j17.CodeNotFound, "Versions of specs are numbered from 1 on.")
	}
	s, err := c.api.Registry.Specs.Version(c.request.Context(), c.instance, c.env, version)
	if err != nil {
		return err
	}
	return c.spec(w, s)
}

// listSpecs is GET spec/history.
func (c *call) listSpecs(w http.ResponseWriter) error {
	l, p, err := c.listingWith(nil, "environment")
	if err == nil {
		err = c.environment(p)
	}
	if err != nil {
		return err
	}
	specs, err := c.api.Registry.Specs.History(c.request.Context(), c.instance, c.env, l.offset, l.limit+1)
	if err != nil {
		return err
	}
	rows := make([]deploymentRow, len(specs))
	for i := range specs {
		rows[i] = row(specs[i], c.env)
	}
	return list(c, w, "versions", l, rows)
}

// diffSpecs is GET spec/diff: what a version says differently than another one.
func (c *call) diffSpecs(w http.ResponseWriter) error {
	p, err := parameters(c.request, "environment", "from", "to")
	if err == nil {
		err = c.environment(p)
	}
	if err != nil {
		return err
	}
	to, err := versionOf(p, "to", 0)
	if err != nil {
		return err
	}
	if to == 0 {
		current, err := c.currentSpec()
		if err != nil {
			return err
		}
		to = current.Version
	}
	from, err := versionOf(p, "from", to-1)
	if err != nil {
		return err
	}
	d, err := c.api.Deploy.Diff(c.request.Context(), c.instance, c.env, from, to)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil, member{"from", d.From}, member{"to", d.To}, member{"changes", d.Changes}, member{"incompatible", d.Incompatible})
}

func versionOf(p map[string]string, name string, otherwise int) (int, error) {
	v, ok := p[name]
	if !ok {
		return otherwise, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		return 0, j17.Errorf(j17.CodeInvalidParameter, "%s must be the number of a version, from 1 on", name).At(name)
	}
	return n, nil
}

// dryRun reads the parameters dry_run and aggregates: how many aggregates to replay, 0 for a real deployment.
func dryRun(p map[string]string) (int, error) {
	dry := false
	if v, ok := p["dry_run"]; ok {
		if dry = v == "true" || v == "1"; !dry && v != "false" && v != "0" {
			return 0, j17.Errorf(j17.CodeInvalidParameter, "dry_run must be true or false").At("dry_run")
		}
	}
	v, ok := p["aggregates"]
	switch {
	case !ok && dry:
		return defaultAggregates, nil
	case !ok:
		return 0, nil
	case !dry:
		return 0, j17.Errorf(j17.CodeInvalidParameter, "aggregates is for dry runs, with dry_run=true").At("aggregates")
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > deploy.MaxAggregates {
		return 0, j17.Errorf(j17.CodeInvalidParameter, "aggregates must be a whole number from 1 to %d", deploy.MaxAggregates).At("aggregates")
	}
	return n, nil
}

// deploySpec is POST spec: the spec itself, or an envelope around it.
func (c *call) deploySpec(w http.ResponseWriter) error {
	p, err := parameters(c.request, "environment", "note", "dry_run", "aggregates")
	if err != nil {
		return err
	}
	r := deploy.Request{Instance: c.instance, Note: p["note"]}
	if name, ok := p["environment"]; ok {
		if r.Environment, err = j17.ParseEnvironment(name); err != nil {
			return j17.Errorf(j17.CodeInvalidParameter, "environment must be prod, staging or test").At("environment")
		}
		c.env = r.Environment
	}
	if r.Aggregates, err = dryRun(p); err != nil {
		return err
	}
	if r.Base, err = c.base(); err != nil {
		return err
	}
	body, err := c.readBody(w, maxSpecBody)
	if err != nil {
		return err
	}
	r.Source = []byte(body)
	c.allowTime(w, deployTime)
	result, err := c.api.Deploy.Deploy(c.acting(), r)
	if err != nil {
		return err
	}
	return c.deployed(w, result)
}

// base reads If-Match: the hash of the spec that must be deployed, nil where it does not matter.
func (c *call) base() (*string, error) {
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
func (c *call) deployed(w http.ResponseWriter, r deploy.Result) error {
	c.env = r.Environment
	changes := r.Changes
	if changes == nil {
		changes = []spec.Change{}
	}
	warnings, incompatible := deploy.FieldErrors(r.Warnings()), deploy.FieldErrors(r.Breaks())
	if r.Replay != nil {
		return c.answer(w, http.StatusOK, nil,
			member{"dry_run", true}, member{"environment", r.Environment}, member{"compatible", len(incompatible) == 0},
			member{"changes", changes}, member{"incompatible", incompatible}, member{"warnings", warnings}, member{"replay", r.Replay})
	}
	status := http.StatusOK
	if r.Created {
		status = http.StatusCreated
	}
	w.Header().Set("Etag", `"`+r.Spec.Hash+`"`)
	return c.answer(w, status, nil,
		member{"deployment", row(r.Spec, r.Environment)}, member{"created", r.Created}, member{"incompatible", incompatible}, member{"warnings", warnings})
}

// rollBackSpec is POST spec/rollback.
func (c *call) rollBackSpec(w http.ResponseWriter) error {
	p, err := parameters(c.request, "dry_run", "aggregates")
	if err != nil {
		return err
	}
	aggregates, err := dryRun(p)
	if err != nil {
		return err
	}
	var body struct {
		Version     *int   `json:"version"`
		Environment string `json:"environment"`
		Force       bool   `json:"force"`
		Note        string `json:"note"`
	}
	if err := c.decode(w, &body); err != nil {
		return err
	}
	if body.Version == nil {
		return j17.Errorf(j17.CodeMissingField, "'version' must be the number of the version to go back to; GET spec/history lists them").At("version")
	}
	env, err := environmentIn(body.Environment, "environment", j17.Prod)
	if err != nil {
		return err
	}
	c.env = env
	c.allowTime(w, deployTime)
	result, err := c.api.Deploy.Rollback(c.acting(), deploy.Rollback{
		Instance: c.instance, Environment: env, Version: *body.Version, Force: body.Force, Note: body.Note, Aggregates: aggregates,
	})
	if err != nil {
		return err
	}
	return c.deployed(w, result)
}

// promoteSpec is POST spec/promote.
func (c *call) promoteSpec(w http.ResponseWriter) error {
	p, err := parameters(c.request, "dry_run", "aggregates")
	if err != nil {
		return err
	}
	aggregates, err := dryRun(p)
	if err != nil {
		return err
	}
	var body struct {
		From    string `json:"from"`
		To      string `json:"to"`
		Version *int   `json:"version"`
		Force   bool   `json:"force"`
		Note    string `json:"note"`
	}
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
	promotion := deploy.Promotion{Instance: c.instance, From: from, To: to, Force: body.Force, Note: body.Note, Aggregates: aggregates}
	if body.Version != nil {
		if promotion.Version = *body.Version; promotion.Version < 1 {
			return j17.Errorf(j17.CodeInvalidField, "'version' must be the number of a version, from 1 on").At("version")
		}
	}
	c.allowTime(w, deployTime)
	result, err := c.api.Deploy.Promote(c.acting(), promotion)
	if err != nil {
		return err
	}
	return c.deployed(w, result)
}

// environmentIn reads an environment that a body names; otherwise, if not "", is meant where it does not.
func environmentIn(name, member string, otherwise j17.Environment) (j17.Environment, error) {
	if name == "" && otherwise != "" {
		return otherwise, nil
	}
	env, err := j17.ParseEnvironment(name)
	if err != nil {
		return "", j17.Errorf(j17.CodeInvalidField, "'%s' must be prod, staging or test", member).At(member)
	}
	return env, nil
}
