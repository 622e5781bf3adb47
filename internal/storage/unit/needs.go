package unit

import (
	"j17"
	"j17/internal/storage/store"
)

// Needed receives the names of stored data.
type Needed interface {
	Head(key j17.Key)
	Item(space store.Space, key string)
	Command(id store.CommandID)
	Match(a *store.Absent)
}

// Needs calls of with the names of what deciding a unit will ask a Reader for, so that an engine can read all of it at
// once. It omits what depends on the answers: a Reader is sometimes asked for more.
func Needs(u *store.Append, of Needed) {
	if u.Command != nil {
		of.Command(u.Command.ID)
	}
	for i := range u.Pre {
		of.Head(u.Pre[i].Key)
	}
	for i := range u.Events {
		of.Head(u.Events[i].Key)
	}
	for i := range u.Fences {
		of.Item(u.Fences[i].Space, u.Fences[i].Key)
	}
	for i := range u.Side {
		if w := &u.Side[i]; !w.StampKey && !w.Plain {
			of.Item(w.Space, w.Key)
		}
	}
	for i := range u.Assign {
		a := &u.Assign[i]
		of.Item(a.Space, a.Owner)
		if a.Counter == "" {
			of.Item(a.Index, a.Value)
		} else {
			of.Item(a.Index, a.Counter)
		}
	}
	for i := range u.Unless {
		of.Match(&u.Unless[i])
	}
}
