package server

import "strings"

// publicPath reports whether a path is valid as the prefix of all others.
func publicPath(p string) bool {
	for part := range strings.SplitSeq(strings.TrimPrefix(p, "/"), "/") {
		if part == "" || part == "." || part == ".." || strings.Trim(part, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" {
			return false
		}
	}
	return strings.HasPrefix(p, "/") && len(p) <= 200
}
