package auth

import (
	"net/netip"
	"time"
)

// Guesses slows down the guessing of a secret. It is safe for concurrent use.
type Guesses struct{ throttle *throttle }

// NewGuesses returns a limit of perMinute wrong guesses from each network.
func NewGuesses(perMinute int) *Guesses {
	return &Guesses{newThrottle(perMinute, time.Minute/time.Duration(perMinute))}
}

// Take counts a guess before it is checked. After too many wrong ones it returns how long until the next may be made,
// and the guess must not be checked.
func (g *Guesses) Take(client netip.Addr, now time.Time) (wait time.Duration) {
	return g.throttle.take(Network(client).AsSlice(), now)
}

// Right undoes a Take: the guess was right.
func (g *Guesses) Right(client netip.Addr) { g.throttle.giveBack(Network(client).AsSlice()) }
