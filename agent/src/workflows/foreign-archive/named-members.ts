/**
 * Members of an archive without manifest, found by their names; pure. Whoever made it says how many there are and how many names are looked
 * for, so all are gone through once, and not again for each name.
 */
import { type MemberRecord, memberNames } from '../../archive/index.ts';
import type { SnapshotConfig } from '../../domain-xml/index.ts';

/** The first member that has one of these names and is of one of these kinds. */
export type FindMember = (
  names: readonly string[],
  kinds: readonly MemberRecord['kind'][],
) => MemberRecord | undefined;

/** @param records names differ */
export function finderOf(records: readonly MemberRecord[]): FindMember {
  const byName = new Map(records.map((record, index) => [record.name, { record, index }]));
  return (names, kinds) =>
    names
      .flatMap(name => byName.get(name) ?? [])
      .filter(({ record }) => kinds.includes(record.kind))
      .sort((a, b) => a.index - b.index)[0]?.record;
}

/** The files that a saved state says it made. */
export const externalOf = ({ disks }: Pick<SnapshotConfig, 'disks'>): SnapshotConfig['disks'] =>
  disks.filter(({ mode, path }) => mode === 'external' && path !== undefined);

/** What follows the disk in the name of the layer that was made above a saved state. */
const endingOf = (state: string): string => memberNames.layer('x', state).slice(1);

/** Files that saved states say they made, by the members that bear their names: of a state of one disk it is plain which. */
export function overlaysOf(
  states: readonly Pick<SnapshotConfig, 'name' | 'disks'>[],
  members: readonly { name: string }[],
): Map<string, string> {
  const bearing = new Map<string, string[]>(states.map(({ name }) => [endingOf(name), []]));
  // an ending begins with `_`, which may stand in the name of a state, too: each is tried
  for (const { name } of members)
    for (let at = name.indexOf('_'); at >= 0; at = name.indexOf('_', at + 1))
      bearing.get(name.slice(at))?.push(name);
  const overlays = new Map<string, string>();
  for (const state of states) {
    const external = externalOf(state);
    const [member, other] = bearing.get(endingOf(state.name))!;
    if (external.length === 1 && member !== undefined && other === undefined)
      overlays.set(member, external[0]!.path!);
  }
  return overlays;
}
