package ident

import (
	"strings"

	"j17"
)

// Prefix is the part of a handle that says what the handle names: 3 lower-case letters.
type Prefix string

// The registry of prefixes: one for each kind of thing that the platform names itself. A prefix never changes, since
// handles are kept outside.
const (
	InstancePrefix   Prefix = "ins"
	OperatorPrefix   Prefix = "opr"
	KeyPrefix        Prefix = "key"
	DeploymentPrefix Prefix = "dep"
	ErrorPrefix      Prefix = "err"
	CheckpointPrefix Prefix = "chk"
	ScheduledPrefix  Prefix = "sch"
	SagaPrefix       Prefix = "sag"
	DeliveryPrefix   Prefix = "dlv"
	TombstonePrefix  Prefix = "tmb"
	BackupPrefix     Prefix = "bkp"
	BlobPrefix       Prefix = "blb"
	AuditPrefix      Prefix = "aud"
)

const (
	// handleAlphabet is 32 characters without those that are mistaken for each other: 0, o, i and l.
	handleAlphabet = "123456789abcdefghjkmnpqrstuvwxyz"
	handleLength   = 15
	prefixLength   = 3
)

// Prefixes lists every registered prefix once.
func Prefixes() []Prefix {
	return []Prefix{
		InstancePrefix, OperatorPrefix, KeyPrefix, DeploymentPrefix, ErrorPrefix, CheckpointPrefix, ScheduledPrefix,
		SagaPrefix, DeliveryPrefix, TombstonePrefix, BackupPrefix, BlobPrefix, AuditPrefix,
	}
}

// ParsePrefix returns the prefix that s spells, registered or not. The error is a *j17.Error of
// CodeInvalidIdentifier.
func ParsePrefix(s string) (Prefix, error) {
	if !isPrefix(s) {
		return "", j17.Errorf(j17.CodeInvalidIdentifier, "A handle's prefix is 3 lower-case letters, which %s is not.", quote(s))
	}
	return Prefix(s), nil
}

// ParseHandle returns the prefix of a handle after checking its shape: a prefix, an underscore and 15 characters of
// the handle alphabet. Handles have no other meaning. The error is a *j17.Error of CodeInvalidIdentifier.
func ParseHandle(s string) (Prefix, error) {
	if !IsHandle(s) {
		return "", j17.Errorf(j17.CodeInvalidIdentifier,
			"%s is no handle: a handle is 3 lower-case letters, an underscore and %d characters, such as %s_4k7vx9tz2nqr8w3.",
			quote(s), handleLength, InstancePrefix)
	}
	return Prefix(s[:prefixLength]), nil
}

// IsHandle reports whether s has the shape of a handle. It costs next to nothing where s is anything else.
func IsHandle(s string) bool {
	prefix, random, _ := strings.Cut(s, "_")
	return isPrefix(prefix) && len(random) == handleLength && strings.Trim(random, handleAlphabet) == ""
}

func isPrefix(s string) bool {
	if len(s) != prefixLength {
		return false
	}
	for i := range len(s) {
		if s[i]-'a' > 25 {
			return false
		}
	}
	return true
}
