// What a user of the types in want.ts writes. Lines after "@ts-expect-error" must not compile.
import type { Agent, StoredAgent, TreeNodeEvent, TreeResult, TreeNodeState, TreeNodeWasCutData, TreeNodeWasCutRefusal, TreeNodeWasGrownData, ForestWasPlannedRefusal } from "./want";

export const grown: TreeNodeWasGrownData = { id: "a", weight: null, kind: "oak", pair: ["x", 1], by_name: { a: 1 } };
export const cut: TreeNodeWasCutData = { branch: "a" };
export const events: TreeNodeEvent[] = [
  { type: "was_grown", data: grown },
  { type: "was_cut", data: cut },
];

export function fold(state: TreeNodeState, event: TreeNodeEvent): TreeNodeState {
  switch (event.type) {
    case "was_grown":
      return { ...state, status: "young", weight: event.data.weight };
    case "was_moved":
      return state;
    case "was_cut":
      return { ...state, status: "cut", why: event.data.why };
    default: {
      const never: never = event;
      return never;
    }
  }
}

export const by: StoredAgent | undefined = fold({ created_at: 1, updated_at: 1 }, events[0]!).grown?.by;

export function shown(tree: TreeResult): string {
  const cuts: number = tree.named?.cuts ?? 0;
  return tree.id + tree.all.map((t) => t.id).join() + tree.log.map((entry) => entry.at ?? 0).join() + (tree.parent?.status ?? "none") + (tree.why ?? "") + cuts;
}

export const actor: Agent = { type: "user", id: "1" };
// @ts-expect-error: the spec has no such agent type
export const nobody: Agent = { type: "nobody", id: "1" };
// @ts-expect-error: the parent may not be there
export const parent = (tree: TreeResult): string => tree.parent.id;
// @ts-expect-error: weight and kind are required
export const incomplete: TreeNodeWasGrownData = { id: "a" };
// @ts-expect-error: "birch" is none of the kinds
export const other: TreeNodeWasGrownData = { id: "a", weight: 1, kind: "birch" };
// @ts-expect-error: there is no such event
export const unknown: TreeNodeEvent = { type: "was_felled", data: cut };
// @ts-expect-error: these are the data of another event
export const mixed: TreeNodeEvent = { type: "was_cut", data: grown };
// @ts-expect-error: a state has no such member
export const state: TreeNodeState = { created_at: 1, updated_at: 1, colour: "green" };

export const told: Record<TreeNodeWasCutRefusal, string> = { cut: "It is cut.", no_why: "Say why.", no__why: "Plant one." };

// @ts-expect-error: no guard refuses with that
export const wrong: TreeNodeWasCutRefusal = "burnt";

export const implied: ForestWasPlannedRefusal[] = ["no_trees", "no_why", "cut", "no__why"];

// @ts-expect-error: what comes later refuses nothing now
export const later: ForestWasPlannedRefusal = "later";
