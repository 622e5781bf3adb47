package work

import "j17"

// Effect is a kind of consequence of a write beyond its own events: what is stored with them, and what follows from
// them.
type Effect uint8

// The effects.
const (
	// Implied is an event that another one implies, Saga a saga that an event starts, Answer one that an event resumes.
	Implied Effect = iota
	Saga
	Answer
	// Scheduled is an event that is to come later, or one that cancels it; Canceled is one that no longer comes.
	Scheduled
	Canceled
	// Place, Tag and Unique are what an event says about where its aggregate is, what it can be found by, and what it
	// takes or gives back.
	Place
	Tag
	Unique
	// Delivery is a listener that is to receive an event.
	Delivery
	// IndexEntry is an entry of a row that an event changes. It is charged to the turn in which its environment makes
	// it.
	IndexEntry
	// Item is anything that is stored beside events, for whichever of the above.
	Item
)

// Charge is what one effect costs, and what bounds how many there are.
type Charge struct {
	// Name is what there is one of.
	Name string
	// Units is what one costs. What is stored of it costs a unit for each BytesPerUnit bytes more.
	Units int
	// Most is how many there may be where nothing else is configured, of what Of says; one too many is refused with
	// Code. 0 means that only the budget bounds them.
	Most int
	Of   string
	Code j17.Code
}

// Effects lists all effects.
func Effects() []Effect {
	return []Effect{Implied, Saga, Answer, Scheduled, Canceled, Place, Tag, Unique, Delivery, IndexEntry, Item}
}

// Charge returns the row of an effect in the table of all. The bytes of all that a write stores are charged too, to the
// budget of one Command: it has fewer bytes than a unit of the store may have, so that nothing is refused for its size
// after it was made.
func (e Effect) Charge() Charge {
	switch e {
	case Implied:
		return Charge{"implied event", 60, 100, "event of the write", j17.CodeImplicationLimit}
	case Saga:
		return Charge{"saga that begins", 500, 100, "write", j17.CodeImplicationLimit}
	case Answer:
		return Charge{"saga that goes on", 200, 100, "instance, as many as run at once", ""}
	case Scheduled:
		return Charge{"scheduled event, or event that cancels it", 60, 10_000, "write, and 100 of an aggregate", j17.CodeImplicationLimit}
	case Canceled:
		return Charge{"scheduled event that is cancelled", 500, 500, "write; others are cancelled in the background", ""}
	case Place:
		return Charge{"place", 500, 1, "event", ""}
	case Tag:
		return Charge{"tag", 50, 100, "event and declaration", j17.CodeSchemaViolation}
	case Unique:
		return Charge{"unique value taken or given back", 250, 0, "", ""}
	case Delivery:
		return Charge{"delivery to a listener", 20, 0, "", ""}
	case IndexEntry:
		return Charge{"index entry", 8, 10_000, "row", j17.CodeProjectionLimit}
	case Item:
		return Charge{"stored item", 40, 0, "", ""}
	}
	return Charge{}
}

// Start takes what n effects of a kind cost, as Spend does, with all that is stored of them in bytes.
func (b *Budget) Start(e Effect, n, bytes int) bool {
	return b.Spend(n*e.Charge().Units + bytes/BytesPerUnit)
}
