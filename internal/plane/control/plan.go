package control

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"j17"
)

// Plan is what an instance may use. Limits of usage are soft: exceeding one raises an alert and stops nothing. A limit
// of 0 means none.
type Plan struct {
	Name string `json:"name"`
	// EventsPerMonth limits the events of all environments in a calendar month (UTC).
	EventsPerMonth int64 `json:"events_per_month,omitempty"`
	// StorageBytes limits what the events of all environments occupy.
	StorageBytes int64 `json:"storage_bytes,omitempty"`
	// RequestsPerMinute is the rate limit of each API key; 0 means the server's.
	RequestsPerMinute int `json:"requests_per_minute,omitempty"`
}

// DefaultPlan is the name of the plan of instances that have no other: it has no limits.
const DefaultPlan = "self-hosted"

// builtInPlans are the plans that every server has, unless its configuration replaces them.
func builtInPlans() []Plan {
	return []Plan{
		{Name: DefaultPlan},
		{Name: "free", EventsPerMonth: 1000, StorageBytes: 1 << 30, RequestsPerMinute: 100},
	}
}

// CheckPlan reports whether a plan is valid. The error is a *j17.Error of CodeInvalidField.
func CheckPlan(p Plan) error {
	switch {
	case !regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`).MatchString(p.Name):
		return j17.Errorf(j17.CodeInvalidField, "A plan's name has up to 40 lower-case letters, digits and hyphens, and starts with no hyphen.").At("name")
	case p.EventsPerMonth < 0, p.StorageBytes < 0, p.RequestsPerMinute < 0:
		return j17.Errorf(j17.CodeInvalidField, "The limits of a plan cannot be negative. Leave out what is not to be limited.")
	}
	return nil
}

// plansOf returns the built-in plans, with those of the configuration added or in their place.
func plansOf(configured []Plan) (map[string]Plan, error) {
	plans := map[string]Plan{}
	for _, p := range append(builtInPlans(), configured...) {
		if err := CheckPlan(p); err != nil {
			return nil, err
		}
		plans[p.Name] = p
	}
	return plans, nil
}

// Plans lists the plans of this server by name.
func (r *Instances) Plans() []Plan {
	return slices.SortedFunc(maps.Values(r.plans), func(a, b Plan) int { return strings.Compare(a.Name, b.Name) })
}

// PlanOf returns the plan of an instance. An instance whose plan is no longer configured has the default one.
func (r *Instances) PlanOf(instanceID string) Plan {
	rec := r.instance(instanceID)
	if rec == nil {
		return r.plans[DefaultPlan]
	}
	if p, ok := r.plans[rec.Plan]; ok {
		return p
	}
	return r.plans[DefaultPlan]
}

func (r *Instances) checkPlanName(name string) error {
	if _, ok := r.plans[name]; ok {
		return nil
	}
	return j17.Errorf(j17.CodeInvalidField, "There is no such plan. This server has %s.", strings.Join(slices.Sorted(maps.Keys(r.plans)), ", ")).At("plan")
}
