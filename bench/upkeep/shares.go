package main

import (
	"strings"

	"github.com/google/pprof/profile"
)

// shares are the parts of all processor time in a profile that chains and the log take.
type shares struct{ chains, log float64 }

// sharesOf adds up samples by what is on their stacks.
func sharesOf(p *profile.Profile) shares {
	var all, chains, log int64
	last := len(p.SampleType) - 1
	for _, s := range p.Sample {
		v := s.Value[last]
		all += v
		switch partOf(s) {
		case ofChains:
			chains += v
		case ofLog:
			log += v
		}
	}
	if all == 0 {
		return shares{}
	}
	return shares{float64(chains) / float64(all), float64(log) / float64(all)}
}

const (
	ofOthers = iota
	ofChains
	ofLog
)

// partOf tells what a sample counts to. What hashes in the commit of events makes leaves and chains; what keeps leaf
// hashes there does it for the log, which need not read the events then.
func partOf(s *profile.Sample) int {
	hashes, commits := false, false
	for _, l := range s.Location {
		for _, line := range l.Line {
			name := line.Function.Name
			switch {
			case strings.HasPrefix(name, "j17/internal/custody/envlog."), strings.HasPrefix(name, "j17/internal/storage/pebble.(*recentLeaves)"):
				return ofLog
			case strings.HasPrefix(name, "crypto/sha256."), name == "j17.Leaf", name == "j17.Link":
				hashes = true
			case strings.HasSuffix(name, "(*batch).stageEvents"):
				commits = true
			}
		}
	}
	if hashes && commits {
		return ofChains
	}
	return ofOthers
}
