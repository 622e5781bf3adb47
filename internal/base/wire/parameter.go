package wire

import (
	"slices"
	"strings"
)

// CalledHere returns the one of the known parameters that corresponds to a name in other systems, "" where there is
// none.
func CalledHere(name string, known []string) string {
	name = strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
	for _, alike := range [][]string{
		{"count", "limit", "perpage", "pagesize", "pagelimit", "size", "top", "take", "first", "max", "maxresults"},
		{"start", "cursor", "page", "pagetoken", "continuation", "startafter", "after"},
		{"offset", "skip"},
		{"order", "sort", "orderby", "sortby", "ordering"},
		{"lat", "latitude"},
		{"lng", "lon", "long", "longitude"},
		{"radius", "distance", "maxdistance"},
		{"box", "bbox", "bounds"},
		{"at", "asof", "time", "timestamp"},
		{"length", "version", "revision"},
		{"after", "since", "from", "lasteventid"},
		{"wait", "timeout", "longpoll"},
		{"dryrun", "validateonly", "simulate"},
		{"environment", "env"},
	} {
		if !slices.Contains(alike, name) {
			continue
		}
		for _, ours := range known {
			if slices.Contains(alike, strings.ReplaceAll(ours, "_", "")) {
				return ours
			}
		}
	}
	return ""
}

// LooksLikeMilliseconds reports whether a time in Unix seconds is after the year 2286, so that milliseconds were
// probably meant.
func LooksLikeMilliseconds(seconds int64) bool { return seconds >= 1e10 }
