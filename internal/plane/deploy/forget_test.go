package deploy_test

import (
	"testing"

	"j17"
)

func TestForget(t *testing.T) {
	f := start(t)
	f.upload(t, "a.wasm", "apply_handler")
	f.deploy(t, simple(`{"wasm":"a.wasm"}`))
	tenant := j17.TenantOf(f.instance, j17.Prod)
	if f.engine.Spec(tenant) == nil {
		t.Fatal("nothing is deployed")
	}
	f.Forget(f.instance)
	if f.engine.Spec(tenant) != nil || len(f.Functions(f.instance, j17.Prod)) != 0 {
		t.Error("the spec is still there")
	}
	f.Forget(f.instance)
}
