package main

import (
	"os"

	"github.com/pocketbase/pocketbase"
	"github.com/pocketbase/pocketbase/core"
	"github.com/pocketbase/pocketbase/tools/types"
)

// servePocketBase runs PocketBase with its defaults and one collection of events, into which anybody may write. A
// stream has each version once.
func servePocketBase(address, folder string) error {
	// PocketBase reads its arguments from there, more than once.
	os.Args = []string{os.Args[0], "serve", "--http", address}
	app := pocketbase.NewWithConfig(pocketbase.Config{DefaultDataDir: folder, HideStartBanner: true})
	app.OnServe().BindFunc(func(e *core.ServeEvent) error {
		e.InstallerFunc = nil // it would open a browser
		if _, err := e.App.FindCollectionByNameOrId("events"); err == nil {
			return e.Next()
		}
		events := core.NewBaseCollection("events")
		events.CreateRule = types.Pointer("")
		events.Fields.Add(
			&core.TextField{Name: "stream", Required: true},
			&core.NumberField{Name: "version", Required: true, OnlyInt: true},
			&core.TextField{Name: "type", Required: true},
			&core.JSONField{Name: "data"},
			&core.JSONField{Name: "metadata"},
			&core.AutodateField{Name: "created", OnCreate: true},
		)
		events.AddIndex("events_stream_version", true, "stream, version", "")
		if err := e.App.Save(events); err != nil {
			return err
		}
		return e.Next()
	})
	return app.Start()
}
