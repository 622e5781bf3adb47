package control

import (
	"context"
	"slices"

	"j17"
)

// Role is the role of an operator. It decides which rights they have, and where.
type Role string

// The roles. A platform admin may do everything everywhere. All others have rights only in the instances that are
// granted to them: an instance admin may do everything, an auditor may see who did and may do what and verify it, and a
// privacy officer may see what is kept and erase personal data.
const (
	RolePlatformAdmin  Role = "platform_admin"
	RoleInstanceAdmin  Role = "instance_admin"
	RoleAuditor        Role = "auditor"
	RolePrivacyOfficer Role = "privacy_officer"
)

// Roles lists every role once.
func Roles() []Role {
	return []Role{RolePlatformAdmin, RoleInstanceAdmin, RoleAuditor, RolePrivacyOfficer}
}

// Right is one kind of action that an operator may be allowed in an instance.
type Right string

// The rights.
const (
	// RightView allows seeing the instance and its usage, its specs, its erasures.
	RightView Right = "view"
	// RightRead allows reading events, states of aggregates and rows of projections.
	RightRead Right = "read"
	// RightInspect allows seeing how it runs: custom code, faults, rejected and unfinished work.
	RightInspect Right = "inspect"
	// RightOperate allows changing how it runs: retry, cancel, checkpoints, backups, blobs, imports.
	RightOperate Right = "operate"
	// RightDeploy allows deploying, promoting and rolling back specs.
	RightDeploy Right = "deploy"
	// RightAudit allows reading the audit log and the list of keys, without tokens, and verifying and exporting events.
	RightAudit Right = "audit"
	// RightErase allows requesting, cancelling and carrying out the erasure of personal data.
	RightErase Right = "erase"
	// RightManage allows managing the instance itself: its keys and settings.
	RightManage Right = "manage"
)

// Rights lists every right once.
func Rights() []Right {
	return []Right{RightView, RightRead, RightInspect, RightOperate, RightDeploy, RightAudit, RightErase, RightManage}
}

// has reports whether the role has a right in an instance that is granted to it.
func (r Role) has(right Right) bool {
	switch r {
	case RolePlatformAdmin, RoleInstanceAdmin:
		return true
	case RoleAuditor:
		return right == RightView || right == RightRead || right == RightAudit
	case RolePrivacyOfficer:
		return right == RightView || right == RightErase
	default:
		return false
	}
}

// May reports whether an operator has a right in an instance, both named by their handles. The instance "" means the
// server as a whole, where only platform admins have rights. It answers from memory, as of now.
func (r *Operators) May(operatorID, instanceID string, right Right) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	rec := r.known.operators[operatorID]
	switch {
	case rec == nil:
		return false
	case rec.Role == RolePlatformAdmin:
		return true
	case r.known.instances[instanceID] == nil:
		return false
	default:
		return rec.Role.has(right) && slices.Contains(rec.Instances, instanceID)
	}
}

// RightsOf returns the rights of an operator in the server as a whole, and in each granted instance by its handle.
func (r *Operators) RightsOf(op Operator) (server []Right, instances map[string][]Right) {
	server, instances = []Right{}, map[string][]Right{}
	for _, right := range Rights() {
		if r.May(op.ID, "", right) {
			server = append(server, right)
		}
		for _, in := range op.Instances {
			if r.May(op.ID, in, right) {
				instances[in] = append(instances[in], right)
			}
		}
	}
	return server, instances
}

// Grant gives an operator the rights of their role in an instance. Granting twice changes nothing.
func (r *Operators) Grant(ctx context.Context, operatorID, instanceID string) (Operator, error) {
	if err := r.lock(ctx); err != nil {
		return Operator{}, err
	}
	defer r.change.release()
	instance := r.instance(instanceID)
	if instance == nil {
		return Operator{}, noInstance()
	}
	return r.amend(ctx, operatorID, func(rec *operatorRecord) (Record, error) {
		switch {
		case rec.Role == RolePlatformAdmin:
			return Record{}, j17.Errorf(j17.CodeConflict, "A platform admin has every right in every instance and needs no grants.")
		case slices.Contains(rec.Instances, instanceID):
			return Record{}, errUnchanged
		case len(rec.Instances) >= maxGrants:
			return Record{}, j17.Errorf(j17.CodeConflict, "An operator can have at most %d instances. Make them a platform admin, or take away those that are not needed.", maxGrants)
		}
		rec.Instances = append(slices.Clone(rec.Instances), instanceID)
		return Record{
			Action: "operator.grant", Instance: instanceID, Target: rec.ID,
			Details: map[string]string{"email": rec.Email, "instance": instance.Name},
		}, nil
	})
}

// Withdraw undoes a Grant. Withdrawing a grant that does not exist changes nothing.
func (r *Operators) Withdraw(ctx context.Context, operatorID, instanceID string) (Operator, error) {
	if err := r.lock(ctx); err != nil {
		return Operator{}, err
	}
	defer r.change.release()
	return r.amend(ctx, operatorID, func(rec *operatorRecord) (Record, error) {
		i := slices.Index(rec.Instances, instanceID)
		if i < 0 {
			return Record{}, errUnchanged
		}
		rec.Instances = slices.Delete(slices.Clone(rec.Instances), i, i+1)
		return Record{
			Action: "operator.withdraw", Instance: instanceID, Target: rec.ID,
			Details: map[string]string{"email": rec.Email},
		}, nil
	})
}

// maxGrants bounds the size of an operator's record.
const maxGrants = 1000
