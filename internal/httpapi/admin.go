package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"j17"
	"j17/internal/auth"
	"j17/internal/control"
	"j17/internal/store"
)

// headerNodeSecret carries the secret that the nodes of one server share.
const headerNodeSecret = "X-Node-Secret" //nolint:gosec // a name, not the secret

// adminRoute is one row of the administration of an environment. Its handler finds the environment in instance, env and
// tenant of the call and who asks in its principal, whichever way the request came. Each row is reachable in three ways:
//
//	/_admin/{pattern}                                 on the hosts of an environment, with an operator's token
//	/api/instances/{instance}/ops/{env}/{pattern}     on the control host, with an operator's token
//	/internal/instances/{instance}/{env}/{pattern}    on the internal listener, with the node secret
//
// Patterns may name their wildcards as they like, but for instance_ and env_.
type adminRoute struct {
	method  string
	pattern string
	right   control.Right
	handle  func(*call, http.ResponseWriter) error
	// action is what the audit log calls an attempt that comes to nothing; "" for what only reads.
	action string
}

// adminRoutes is the table of all rows. Areas with many have a table of their own in their file.
func (a *API) adminRoutes() []adminRoute {
	return slices.Concat(
		[]adminRoute{
			{http.MethodGet, "tombstones", control.RightView, (*call).listTombstones, ""},
			{http.MethodGet, faultPattern, control.RightInspect, (*call).getFault, ""},
		},
		a.specAdminRoutes(),
		a.blobRoutes(),
		a.debugRoutes(),
		a.implicationRoutes(),
		a.historyRoutes(),
	)
}

// adminPrefix starts the paths of the administration on the hosts of an environment. They have a router of their own,
// since "/_admin/x/{name}" and "/{type}/{id}/length" cannot stand side by side in one.
const adminPrefix = "/_admin/"

// adminMounts returns the three routes of every row.
func (a *API) adminMounts() []route {
	var all []route
	for _, row := range a.adminRoutes() {
		byOperator := func(c *call, w http.ResponseWriter) error {
			if err := c.mounted(); err != nil {
				return err
			}
			allowed := c.authorizeOperator
			if c.control {
				allowed = c.needRight // which also keeps to itself what there is
			}
			if err := allowed(c.instance, row.right); err != nil {
				return err
			}
			if c.control && (row.pattern != faultPattern || !c.faultHere()) {
				return c.forwarded(w, c.opsPath(), row.handle)
			}
			return row.handle(c, w)
		}
		byNode := func(c *call, w http.ResponseWriter) error {
			if err := c.mounted(); err != nil {
				return err
			}
			if instance, ok := c.api.Registry.Instances.ByID(c.instance); ok {
				if err := c.here(instance); err != nil {
					return err
				}
			}
			return row.handle(c, w)
		}
		all = append(
			all,
			route{adminSite, row.method, adminPrefix + row.pattern, operator, auditedHere(row.action, byOperator)},
			route{controlSite, row.method, "/api/instances/{instance_}/ops/{env_}/" + row.pattern, operator, auditedHere(row.action, byOperator)},
			route{internalSite, row.method, "/internal/instances/{instance_}/{env_}/" + row.pattern, node, auditedHere(row.action, byNode)},
		)
	}
	return all
}

// mounted sets the environment that the path names, where the host has not named one.
func (c *call) mounted() error {
	id := c.request.PathValue("instance_")
	if id == "" {
		return nil
	}
	instance, ok := c.api.Registry.Instances.ByID(id)
	if !ok {
		return j17.Errorf(j17.CodeNotFound, "There is no instance with this id. Ids of instances start with 'ins_'; GET /api/instances lists them.")
	}
	env, err := j17.ParseEnvironment(c.request.PathValue("env_"))
	if err != nil {
		return j17.Errorf(j17.CodeNotFound, "There is no such environment. Environments are prod, staging and test.")
	}
	c.target(instance.ID, env)
	return nil
}

// authorizeOperator reports whether the operator who asks has a right on an instance.
func (c *call) authorizeOperator(instance string, need control.Right) error {
	if c.principal.Kind == j17.Operator && c.api.Registry.Operators.May(c.principal.ID, instance, need) {
		return nil
	}
	return j17.Errorf(j17.CodeForbidden, "This needs the right '%s' on the instance, which your role does not give you. Ask a platform admin for it.", need)
}

// auditedHere makes the audit log tell of attempts at an action in an environment that came to nothing; "" is none. What
// succeeds is recorded where it happens, and the dry run of a deployment is no attempt.
func auditedHere(action string, handle func(*call, http.ResponseWriter) error) func(*call, http.ResponseWriter) error {
	if action == "" {
		return handle
	}
	return func(c *call, w http.ResponseWriter) error {
		err := handle(c, w)
		dry := c.request.URL.Query().Get("dry_run")
		if err == nil || strings.HasPrefix(action, "spec.") && (dry == "true" || dry == "1") {
			return err
		}
		if i, ok := c.api.Registry.Instances.ByID(c.request.PathValue("instance_")); ok {
			c.instance = i.ID
		}
		c.recordFailure(control.Record{Action: action, Instance: c.instance, Environment: c.env, Target: c.request.PathValue("name")}, err)
		return err
	}
}

// admitNode lets in who knows the node secret.
func (c *call) admitNode() error {
	given := c.request.Header[headerNodeSecret]
	if len(given) != 1 || given[0] == "" {
		return j17.Errorf(j17.CodeUnauthorized, "This needs the node secret, in one header %s.", headerNodeSecret)
	}
	peer := c.peer()
	if wait := c.api.guesses.Take(peer, c.api.Clock.Now()); wait > 0 {
		e := j17.Errorf(j17.CodeRateLimited, "Too many wrong node secrets came from this address. Try again in %d seconds.", seconds(wait))
		e.Details = auth.RetryAfter{Seconds: seconds(wait)}
		c.api.refusals.note(c, e)
		return e
	}
	// Hashes have one length, so that not even the secret's length shows in the time this takes.
	got, want := sha256.Sum256([]byte(given[0])), sha256.Sum256([]byte(c.api.Registry.Secrets.NodeSecret()))
	if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		err := j17.Errorf(j17.CodeForbidden, "This is not the node secret of this server.")
		c.api.refusals.note(c, err)
		return err
	}
	c.api.guesses.Right(peer)
	c.principal = j17.Principal{Kind: j17.Node}
	c.actFor()
	return nil
}

// listing is the part of a list that is asked for.
type listing struct {
	// status selects rows, "" for all.
	status        string
	limit, offset int
}

// listing reads limit, offset and, where there are statuses to choose from, status. Handlers gather limit+1 rows from
// offset on, if there are as many, and hand them to list.
func (c *call) listing(statuses ...string) (listing, error) {
	l, _, err := c.listingWith(statuses)
	return l, err
}

// listingWith reads what listing does, and returns the parameters, among which more may stand.
func (c *call) listingWith(statuses []string, more ...string) (l listing, p map[string]string, err error) {
	l.limit = defaultCount
	known := append([]string{"limit", "offset"}, more...)
	if len(statuses) > 0 {
		known = append(known, "status")
	}
	if p, err = parameters(c.request, known...); err != nil {
		return l, nil, err
	}
	if v, ok := p["limit"]; ok {
		if l.limit, err = strconv.Atoi(v); err != nil || l.limit < 1 || l.limit > maxCount {
			return l, nil, j17.Errorf(j17.CodeInvalidParameter, "limit must be a whole number from 1 to %d", maxCount).At("limit")
		}
	}
	if v, ok := p["offset"]; ok {
		if l.offset, err = strconv.Atoi(v); err != nil || l.offset < 0 {
			return l, nil, j17.Errorf(j17.CodeInvalidParameter, "offset must be a whole number from 0 on").At("offset")
		}
	}
	if v, ok := p["status"]; ok {
		if !slices.Contains(statuses, v) {
			return l, nil, j17.Errorf(j17.CodeInvalidParameter, "status must be one of %s", strings.Join(statuses, ", ")).At("status")
		}
		l.status = v
	}
	return l, p, nil
}

// list answers {"ok":true,"<plural>":[...],"next":...} with up to l.limit of the rows that begin at l.offset; next is the
// offset of those after them, null where there are none.
func list[T any](c *call, w http.ResponseWriter, plural string, l listing, rows []T) error {
	var next *int
	if len(rows) > l.limit {
		rows = rows[:l.limit]
		next = new(l.offset + l.limit)
	}
	if rows == nil {
		rows = []T{}
	}
	return c.answer(w, http.StatusOK, struct {
		Next *int `json:"next"`
	}{next}, member{plural, rows})
}

// part returns the rows of a whole list that l asks for, and one more if there is one.
func part[T any](all []T, l listing) []T {
	from := min(l.offset, len(all))
	return all[from:min(len(all), from+l.limit+1)]
}

// member is one member of an answer.
type member struct {
	name  string
	value any
}

// answer sends {"ok":true,...}: the members, then those of rest, which is a struct or nil. Texts are not escaped for HTML.
func (c *call) answer(w http.ResponseWriter, status int, rest any, members ...member) error {
	b := []byte(`{"ok":true`)
	if c.awaitReplicas(); c.behind != nil {
		members = append(members, member{"workers_behind", c.behind})
	}
	for _, m := range members {
		raw, err := marshal(m.value)
		if err != nil {
			return err
		}
		b = append(append(append(b, `,"`...), m.name...), `":`...)
		b = append(b, raw...)
	}
	if rest != nil {
		raw, err := marshal(rest)
		if err != nil {
			return err
		}
		if len(raw) > len("{}") {
			b = append(append(b, ','), raw[1:len(raw)-1]...)
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	return c.reply(w, status, append(b, '}'))
}

// marshal encodes JSON as people write it: with <, > and & as they are.
func marshal(v any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

// tombstoneSpace holds the erasures of an environment: one JSON object each.
const tombstoneSpace store.Space = "tombstones"

// listTombstones is GET tombstones.
func (c *call) listTombstones(w http.ResponseWriter) error {
	l, err := c.listing()
	if err != nil {
		return err
	}
	items, err := c.api.Store.Scan(c.request.Context(), c.tenant, tombstoneSpace, store.Range{}, l.offset+l.limit+1)
	if err != nil {
		return err
	}
	rows := make([]json.RawMessage, 0, len(items))
	for _, it := range part(items, l) {
		rows = append(rows, it.Value)
	}
	return list(c, w, "tombstones", l, rows)
}
