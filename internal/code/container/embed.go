package container

import "embed"

// bootstrap holds, for each runtime, the script that loads the author's file and speaks the protocol.
//
//go:embed bootstrap
var bootstrap embed.FS
