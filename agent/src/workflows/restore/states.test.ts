import { describe, expect, test } from '@jest/globals';
import type { ManifestDisk, ManifestSavedState } from '../../archive/index.ts';
import { parentsFirst, planStates, type RestoredState, type StateCandidate } from './states.ts';

/** A disk whose layers are a file each: `/a` at the bottom. */
const diskOf = (target: string, ...layers: [path: string, frozenBy: string | null][]) =>
  ({
    target,
    layers: layers.map(([formerPath, frozenBy]) => ({
      member: formerPath,
      stateNumber: 1,
      frozenBy,
      formerPath,
    })),
  }) as unknown as ManifestDisk;

interface Given {
  parent?: string;
  at: number;
  current?: boolean;
  merged?: boolean;
  /** Per target the overlay that the state made; the disk's source in the state's XML is misleading on purpose. */
  overlays: Record<string, string>;
}

function candidate(
  name: string,
  { parent, at, current = false, merged = false, overlays }: Given,
): StateCandidate {
  const disks = Object.entries(overlays);
  const xml = `<domainsnapshot><name>${name}</name><creationTime>${at}</creationTime>
    <disks>${disks.map(([target, path]) => `<disk name='${target}' snapshot='external'><source file='${path}'/></disk>`).join('')}</disks>
    <domain type='qemu'><name>vm</name><uuid>11111111-2222-4333-8444-555555555555</uuid><memory>1024</memory><os><type>hvm</type></os><devices>
    ${disks.map(([target]) => `<disk type='file' device='disk'><source file='/a'/><target dev='${target}'/></disk>`).join('')}
    </devices></domain></domainsnapshot>`;
  const record = {
    name,
    parent: parent ?? null,
    current,
    created: new Date(at * 1000).toISOString(),
    xmlMember: `${name}.xml`,
  } as ManifestSavedState;
  return { record, xml, merged };
}

const summary = (plan: ReturnType<typeof planStates>) =>
  plan.states.map(({ record, parent, current, frozen }) => ({
    name: record.name,
    parent,
    current,
    frozen: Object.fromEntries([...frozen].map(([target, { index }]) => [target, index])),
  }));

describe('the saved states of a restored VM', () => {
  test('those whose layers are in the archive, keeping the layer below what they made', () => {
    const disks = [diskOf('vda', ['/a', 's1'], ['/b', 's2'], ['/c', null])];
    const plan = planStates(
      disks,
      [
        candidate('s1', { at: 1, overlays: { vda: '/b' } }),
        candidate('s2', { at: 2, parent: 's1', current: true, overlays: { vda: '/c' } }),
      ],
      null,
    );
    expect(summary(plan)).toEqual([
      { name: 's1', parent: null, current: false, frozen: { vda: 0 } },
      { name: 's2', parent: 's1', current: true, frozen: { vda: 1 } },
    ]);
    expect(plan.warnings).toEqual([]);
  });

  test('the restored state itself is none of them; the one before is current', () => {
    const disks = [diskOf('vda', ['/a', 's1'], ['/b', 'own'])];
    const plan = planStates(
      disks,
      [
        candidate('s1', { at: 1, overlays: { vda: '/b' } }),
        candidate('own', { at: 2, parent: 's1', current: true, overlays: { vda: '/c' } }),
      ],
      'own',
    );
    expect(summary(plan)).toEqual([{ name: 's1', parent: null, current: true, frozen: { vda: 0 } }]);
    expect(plan.warnings).toEqual([]);
  });

  test('merged ones go back between their neighbours', () => {
    const disks = [diskOf('vda', ['/a', 'b1'], ['/b', 'mine'], ['/c', 'b2'], ['/d', 'b3'])];
    const plan = planStates(
      disks,
      [
        // b1 was merged away, so "mine" has no parent any more; b2 was, too, and nothing stands on it but the state itself
        candidate('mine', { at: 2, current: true, overlays: { vda: '/c' } }),
        candidate('b1', { at: 1, merged: true, overlays: { vda: '/b' } }),
        candidate('b2', { at: 3, merged: true, parent: 'mine', overlays: { vda: '/d' } }),
      ],
      'b3',
    );
    expect(summary(plan).map(({ name, parent, frozen }) => [name, parent, frozen.vda])).toEqual([
      ['b1', null, 0],
      ['mine', 'b1', 1],
      ['b2', 'mine', 2],
    ]);
  });

  test('chains of moved files are known by the names of the states', () => {
    const disks = [diskOf('vda', ['/new/a', 's1'], ['/new/b', null])];
    const plan = planStates(disks, [candidate('s1', { at: 1, overlays: { vda: '/old/b' } })], null);
    expect(summary(plan)).toMatchObject([{ name: 's1', frozen: { vda: 0 } }]);
  });

  test('disks that changed places since are told apart by their files', () => {
    const disks = [
      diskOf('vda', ['/x', 's1'], ['/y', null]),
      diskOf('vdb', ['/a', 's1'], ['/b', 's2'], ['/c', null]),
    ];
    const plan = planStates(disks, [candidate('s1', { at: 1, overlays: { vda: '/b', vdb: '/y' } })], null);
    expect([...plan.states[0]!.frozen]).toEqual([
      ['vda', { disk: 'vdb', index: 0 }],
      ['vdb', { disk: 'vda', index: 0 }],
    ]);
  });

  test('one that is inside of a layer comes back with it, also when layers are many', () => {
    const layers = Array.from({ length: 120 }, (_, at): [string, string | null] => [`/${at}`, null]);
    const { record } = candidate('mine', { at: 1, overlays: {} });
    const xml = `<domainsnapshot><name>mine</name><creationTime>1</creationTime>
      <disks><disk name='vda' snapshot='internal'/></disks>
      <domain type='qemu'><name>vm</name><uuid>11111111-2222-4333-8444-555555555555</uuid><memory>1024</memory><os><type>hvm</type></os><devices>
      <disk type='file' device='disk'><source file='/50'/><target dev='vda'/></disk></devices></domain></domainsnapshot>`;
    const plan = planStates([diskOf('vda', ...layers)], [{ record, xml, merged: false }], null);
    expect(plan.files.get('vda')).toEqual([0, 50, 51]);
  });

  test('a disk that is another one by now is not part of an older state; a state without any disk is left out', () => {
    const disks = [diskOf('vda', ['/a', 's1'], ['/b', null]), diskOf('vdb', ['/x', null])];
    const plan = planStates(
      disks,
      [
        candidate('s1', { at: 1, overlays: { vda: '/b', vdb: '/gone' } }),
        candidate('s2', { at: 2, parent: 's1', current: true, overlays: { vda: '/nowhere' } }),
      ],
      null,
    );
    expect(summary(plan)).toEqual([{ name: 's1', parent: null, current: true, frozen: { vda: 0 } }]);
    expect(plan.warnings).toEqual([expect.stringContaining('"s2"')]);
  });
});

describe('parents come before children', () => {
  const state = (name: string, parent: string | null) =>
    ({ record: { name } as ManifestSavedState, parent }) as RestoredState;
  const names = (states: RestoredState[]) => parentsFirst(states).map(({ record }) => record.name);

  test('by depth, and those of one depth as they were given', () => {
    const states = [
      state('b1', 'b'),
      state('b', null),
      state('a2', 'a'),
      state('a', null),
      state('b1x', 'b1'),
      state('a1', 'a'),
    ];
    expect(names(states)).toEqual(['b', 'a', 'b1', 'a2', 'a1', 'b1x']);
  });

  test('those without a way to a first one, or in a circle, are left out', () => {
    const states = [state('x', 'gone'), state('y', 'x'), state('p', 'q'), state('q', 'p'), state('s', 's')];
    expect(names([...states, state('a', null)])).toEqual(['a']);
  });

  test('of a chain of hundreds of thousands that is told the wrong way round, too', () => {
    const count = 200_000;
    const chain = Array.from({ length: count }, (_, at) => state(`s${at}`, at === 0 ? null : `s${at - 1}`));
    const sorted = names(chain.toReversed());
    expect([sorted.length, sorted[0], sorted.at(-1)]).toEqual([count, 's0', `s${count - 1}`]);
  });
});
