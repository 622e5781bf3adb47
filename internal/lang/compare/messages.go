package compare

import "j17/internal/lang/diag"

const (
	nowRequired diag.Message = "error: the property %s is required now and was not before; stored events may lack it\n" +
		`leave it optional, or make the former schema a generation of its own: "j17 spec diff --propose" writes it`
	nowRequiredWith diag.Message = "error: the property %s is required now beside %q and was not before; stored events may lack it\n" +
		`leave it optional, or make the former schema a generation of its own: "j17 spec diff --propose" writes it`
	typeChanged diag.Message = "error: the value of %s was %s and is %s now; stored events have the old type\n" +
		`accept the old type too, or make the former schema a generation of its own: "j17 spec diff --propose" writes it`
	typeForbidden diag.Message = "error: the value of %s was %s and is not allowed now; stored events have it\n" +
		`accept the old type too, or make the former schema a generation of its own: "j17 spec diff --propose" writes it`
	otherGeneration diag.Message = "warning: the schema of generation %d is not the one that was deployed under this number; events of %q were stored under that one\n" +
		"leave it as it was, unless the events really are of this shape"
	nowClosed diag.Message = "error: the object %s no longer accepts undeclared properties; stored events may have some\n" +
		`remove "additionalProperties": false, or make the former schema a generation of its own: "j17 spec diff --propose" writes it`
	projectKeyRemoved diag.Message = "error at key: project_key was %[1]q and is gone; public ids that were given out, such as %[1]s-1, would lead nowhere\n" +
		"keep it"
	projectKeyChanged diag.Message = "error at key: project_key was %[1]q; every public id would change, %[1]s-1 into %[2]s-1, and those that were given out would lead nowhere\n" +
		"keep it"
	handleRemoved diag.Message = "error at key: aggregates of the type %q had handles; those that were given out, %s_..., would lead nowhere\n" +
		`keep "handle": %[2]q`
	handleChanged diag.Message = "warning at key: handles of the type %q began with %s_; aggregates that have one keep it, only new ones get %s_...\n" +
		"keep %[2]q if anybody tells by these letters what a handle names"
	sequenceRemoved diag.Message = "error at key: aggregates of the type %q had public ids; those that were given out would lead nowhere\n" +
		`keep "sequence": true`
	singletonRemoved diag.Message = "warning at key: the singleton %q was removed; what is stored under it can no longer be reached\n" +
		"keep it if it was used"
	versionRemoved diag.Message = "warning at key: UUIDs of version %s are no longer accepted; aggregates with such ids can no longer be reached\n" +
		"keep the version if it was used"
	tooComplex diag.Message = "error: the schema combines too many alternatives to be compared with the one before\n" +
		"simplify it, or deploy with force after checking that stored events fit"
	placesRemoved diag.Message = "warning at key: aggregates of the type %q had places of the shape %s and have none now; requests for them will fail\n" +
		`keep "geo" in one of the event types`
	typeRemoved diag.Message = "error at key: the aggregate type %q was removed; its events could no longer be read\n" +
		"keep it; what is no longer written does no harm"
	eventRemoved diag.Message = "error at key: the event type %q of %q was removed; events of it could no longer be applied\n" +
		`keep it, with "retired": true where nobody writes it any more`
	projectionRemoved diag.Message = "warning at key: the projection %q was removed; requests for it will fail\n" +
		"keep it while anybody still asks for it"
	tagRemoved diag.Message = "warning at key: no event type has the tag %q any longer; conditions and filters that name it will be refused\n" +
		"keep it while anybody still names it"
	askedOtherwise diag.Message = "warning at key: the projection %q is asked for with %s now and was with %s; requests of the old form will fail\n" +
		"declare it under another name, and keep the old one while anybody still asks for it"
)

// renamed sets the hint for a name that is gone and may have been replaced by an added one: requests for the old name
// fail until they use the new one.
func (c *comparer) renamed(d *diag.Diagnostic, name string, added []string, until string) {
	if near := c.Nearest(name, added); near != "" {
		d.Hintf("if it is called %q now, keep %q beside it %s", near, name, until)
	}
}
