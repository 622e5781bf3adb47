package wire

import (
	"time"

	"j17"
)

// Login asks for an operator's token.
type Login struct {
	Email    string `json:"email"`
	Password string `json:"password"`
}

// LoggedIn has the token, which is valid until ExpiresAt in Unix seconds.
type LoggedIn struct {
	Token     string   `json:"token"`
	ExpiresAt int64    `json:"expires_at"`
	Operator  Operator `json:"operator"`
}

// NewSession begins a session, with an address and a password or with a code that works once.
type NewSession struct {
	Email    string `json:"email,omitempty"`
	Password string `json:"password,omitempty"`
	Code     string `json:"code,omitempty"`
}

// SessionBegun is a session that has begun. Its token is in the cookie of the answer only.
type SessionBegun struct {
	Operator  Operator  `json:"operator"`
	ExpiresAt time.Time `json:"expires_at"`
}

// SessionShown names the operator of the session that a request's cookie is for; Operator is null where it is for none.
type SessionShown struct {
	Operator  *OperatorRights `json:"operator"`
	ExpiresAt time.Time       `json:"expires_at,omitzero"`
}

// OperatorRights is an operator with their rights.
type OperatorRights struct {
	Operator
	Rights Rights `json:"rights"`
}

// Rights are those of an operator: in the server, which are rights in every instance too, and in single instances by
// their ids.
type Rights struct {
	Server    []string            `json:"server"`
	Instances map[string][]string `json:"instances"`
}

// Session is a session of the caller. Current reports that the request has its cookie.
type Session struct {
	ID        string    `json:"id"`
	CreatedAt time.Time `json:"created_at"`
	UsedAt    time.Time `json:"used_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Address   string    `json:"address"`
	Current   bool      `json:"current"`
}

// Sessions are those of the caller, the oldest first.
type Sessions struct {
	Sessions []Session `json:"sessions"`
}

// LoginCode begins one session. Link is where a browser takes it; the code is in the fragment, which is sent to no
// server.
type LoginCode struct {
	Code      string    `json:"code"`
	Link      string    `json:"link"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Setup makes the first operator of a server.
type Setup struct {
	Token    string `json:"token"`
	Email    string `json:"email"`
	Password string `json:"password"`
}

// SetUp is the first operator.
type SetUp struct {
	Operator Operator `json:"operator"`
}

// Operator is an operator as shown to people.
type Operator struct {
	ID        string    `json:"id"`
	Email     string    `json:"email"`
	Role      string    `json:"role"`
	Instances []string  `json:"instances"`
	CreatedAt time.Time `json:"created_at"`
}

// NewOperator asks for one.
type NewOperator struct {
	Email     string   `json:"email"`
	Password  string   `json:"password"`
	Role      string   `json:"role"`
	Instances []string `json:"instances,omitempty"`
}

// NewRole gives an operator another role.
type NewRole struct {
	Role string `json:"role"`
}

// NewPassword gives an operator another password.
type NewPassword struct {
	Password string `json:"password"`
}

// OwnPassword changes the password of the caller.
type OwnPassword struct {
	Current string `json:"current_password"`
	New     string `json:"new_password"`
}

// KeyRotation makes a new signing key; with Revoke no token of an older one stays valid.
type KeyRotation struct {
	Revoke bool `json:"revoke,omitempty"`
}

// Node is a worker.
type Node struct {
	Name        string `json:"name"`
	PublicURL   string `json:"public_url"`
	InternalURL string `json:"internal_url"`
	Version     string `json:"version"`
	// Instances is how many it has.
	Instances int `json:"instances"`
	// SeenAt and Writable are null for a worker that has not been heard of since the headnode started.
	SeenAt   *time.Time `json:"seen_at"`
	Writable *bool      `json:"writable"`
}

// Instance is an instance as shown to people.
type Instance struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Plan string `json:"plan"`
	// Node is the worker that has it, "" where there is one server only.
	Node         string        `json:"node,omitempty"`
	CreatedAt    time.Time     `json:"created_at"`
	Environments []Environment `json:"environments"`
}

// Environment is an environment of an instance, and where it is reached.
type Environment struct {
	Name j17.Environment `json:"name"`
	Host string          `json:"host"`
}

// InstanceUse is an instance with its plan and its use of it, which is null where its worker does not say.
type InstanceUse struct {
	Limits Plan   `json:"limits"`
	Usage  *Month `json:"usage"`
	Instance
}

// NewInstance asks for one.
type NewInstance struct {
	Name string `json:"name"`
	Plan string `json:"plan,omitempty"`
}

// InstanceChange renames an instance or gives it another plan.
type InstanceChange struct {
	Name *string `json:"name,omitempty"`
	Plan *string `json:"plan,omitempty"`
}

// Deletion deletes an instance. Confirm is its name, required where it has events.
type Deletion struct {
	Confirm string `json:"confirm,omitempty"`
}

// Plan is what an instance may use. A limit that is not given is unlimited.
type Plan struct {
	Name              string `json:"name"`
	EventsPerMonth    int64  `json:"events_per_month,omitempty"`
	StorageBytes      int64  `json:"storage_bytes,omitempty"`
	RequestsPerMinute int    `json:"requests_per_minute,omitempty"`
}

// Plans are those of a server.
type Plans struct {
	Plans []Plan `json:"plans"`
}

// Month is what an instance has used of its plan in the current calendar month (UTC).
type Month struct {
	Period   string `json:"period"`
	Events   Amount `json:"events"`
	Storage  Amount `json:"storage_bytes"`
	Reads    int64  `json:"reads"`
	Requests int64  `json:"requests"`
}

// Amount is a quantity and its limit.
type Amount struct {
	Used int64 `json:"used"`
	// Limit is 0 where there is none; Percent is left out then.
	Limit   int64 `json:"limit,omitempty"`
	Percent int64 `json:"percent,omitempty"`
}

// Day is what one environment has used on one day (UTC).
type Day struct {
	Date        string          `json:"date"`
	Environment j17.Environment `json:"environment"`
	Events      int64           `json:"events"`
	// Reads counts the reading requests with an API key, Requests all requests with one.
	Reads    int64 `json:"reads"`
	Requests int64 `json:"requests"`
	// StorageBytes is how much all events of the environment occupy at the end of the day.
	StorageBytes int64 `json:"storage_bytes"`
}

// Days are the usage of an instance.
type Days struct {
	Days []Day `json:"days"`
}

// Key is an API key as shown to people.
type Key struct {
	ID          string          `json:"id"`
	Name        string          `json:"name"`
	Instance    string          `json:"instance_id"`
	Environment j17.Environment `json:"environment"`
	Scope       j17.Scope       `json:"scope"`
	Prefix      string          `json:"prefix"`
	Status      string          `json:"status"`
	CreatedAt   time.Time       `json:"created_at"`
	CreatedBy   string          `json:"created_by,omitempty"`
	LastUsedAt  *time.Time      `json:"last_used_at"`
	RevokeAt    time.Time       `json:"revoke_at,omitzero"`
	RevokedAt   time.Time       `json:"revoked_at,omitzero"`
}

// NewKey asks for one.
type NewKey struct {
	Name        string          `json:"name"`
	Scope       j17.Scope       `json:"scope"`
	Environment j17.Environment `json:"environment"`
}

// MadeKey is a new key with its token, which is shown nowhere else, and the id of the key that it replaces.
type MadeKey struct {
	Token    string `json:"key"`
	Replaces string `json:"replaces,omitempty"`
	Key
}

// Revocation says when a key becomes invalid, as RFC 3339.
type Revocation struct {
	RevokeAt string `json:"revoke_at"`
}

// Actor is who did something, and from where.
type Actor struct {
	Kind string `json:"kind"`
	// ID and Email are those of an operator.
	ID      string `json:"id,omitempty"`
	Email   string `json:"email,omitempty"`
	Address string `json:"address,omitempty"`
}

// Record is one line of the audit log: who did what to what, when and from where.
type Record struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
	// Action is what was done, as "noun.verb".
	Action      string            `json:"action"`
	Actor       Actor             `json:"actor"`
	Instance    string            `json:"instance,omitempty"`
	Environment j17.Environment   `json:"environment,omitempty"`
	Target      string            `json:"target,omitempty"`
	Outcome     string            `json:"outcome"`
	Code        j17.Code          `json:"code,omitempty"`
	RequestID   string            `json:"request_id,omitempty"`
	Details     map[string]string `json:"details,omitempty"`
}

// Records is a page of the audit log.
type Records struct {
	Records []Record `json:"records"`
	Next    *string  `json:"next"`
}

// Failed is what is known about a request that the server failed to answer.
type Failed struct {
	Failure Fault `json:"failure"`
}

// Fault is what is kept about such a request.
type Fault struct {
	// ID is the error_id of the answer.
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	Code    j17.Code  `json:"code"`
	Status  int       `json:"status"`
	Message string    `json:"message"`
	// Cause is the chain of causes, which is not shown in the answer.
	Cause string `json:"cause,omitempty"`
	Stack string `json:"stack,omitempty"`
	// Route is the pattern that the request matched, Path what it asked for, without its query.
	Method        string          `json:"method"`
	Route         string          `json:"route"`
	Path          string          `json:"path"`
	Instance      string          `json:"instance,omitempty"`
	Environment   j17.Environment `json:"environment,omitempty"`
	Principal     string          `json:"principal,omitempty"`
	RequestID     string          `json:"request_id"`
	CorrelationID string          `json:"correlation_id"`
	Version       string          `json:"version,omitempty"`
}

// Used is what a worker reports about the usage of an instance.
type Used struct {
	Usage Month `json:"usage"`
}
