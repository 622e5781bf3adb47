package postgres

// Reads is what the answers of a store rely on.
type Reads string

const (
	// ReadLease answers as long as this node is the active one for certain: for leaseTime after its last beat. What a
	// server shows after a start or a doubt is held back until a later commit was acknowledged.
	ReadLease Reads = "lease"
	// ReadQuorum also has a commit of its own acknowledged after each read, shared by those that wait, so that the
	// primary was still the primary and standbys have everything that was read.
	ReadQuorum Reads = "quorum"
	// ReadPrimary answers with what the primary shows, even if that is on no standby, and without beats.
	ReadPrimary Reads = "primary"
)

// ReadModes returns all values of Reads.
func ReadModes() []Reads { return []Reads{ReadLease, ReadQuorum, ReadPrimary} }
