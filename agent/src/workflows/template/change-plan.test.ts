import { describe, expect, test } from '@jest/globals';
import type { Layer } from '../../disks/index.ts';
import { NO_METADATA } from '../../domain-xml/index.ts';
import { type ChangeFacts, type MemberDisk, type MemberFacts, planChange } from './change-plan.ts';

const layer = (path: string, virtualSize = 100, change: Partial<Layer> = {}): Layer => ({
  path,
  format: 'qcow2',
  virtualSize,
  allocatedSize: 10,
  fileSize: 10,
  dataFile: false,
  encrypted: false,
  unknownFeatures: false,
  ...change,
});

const disk = (targetDev: string, layers: Layer[], change: Partial<MemberDisk> = {}): MemberDisk => ({
  targetDev,
  path: layers[0]?.path ?? '/pool/missing',
  realPath: layers[0]?.path ?? '/pool/missing',
  format: 'qcow2',
  block: false,
  layers,
  ...change,
});

const member = (id: string, disks: MemberDisk[], change: Partial<MemberFacts> = {}): MemberFacts => ({
  id,
  name: id,
  running: false,
  managedSave: false,
  states: [],
  metadata: { ...NO_METADATA, parent: { id: 'gold', version: 2 } },
  disks,
  ...change,
});

const golden = (change: Partial<MemberFacts> = {}) =>
  member('gold', [disk('vda', [layer('/pool/a')]), disk('vdb', [layer('/pool/b')])], {
    metadata: { ...NO_METADATA, template: true, templateVersion: 2 },
    ...change,
  });

/** A clone whose overlays stand on both disks. */
const cloneOf = (id: string, change: Partial<MemberFacts> = {}, sizes = [100, 100]) =>
  member(
    id,
    [
      disk('vda', [layer(`/pool/${id}.a`, sizes[0]), layer('/pool/a')]),
      disk('vdb', [layer(`/pool/${id}.b`, sizes[1]), layer('/pool/b')]),
    ],
    change,
  );

const facts = (change: Partial<ChangeFacts> = {}): ChangeFacts => ({
  template: golden(),
  clones: [cloneOf('one'), cloneOf('two')],
  changingId: 'one',
  foreign: new Map(),
  refusalOf: () => null,
  ...change,
});

function reasons(change: Partial<ChangeFacts>): string {
  const plan = planChange(facts(change), 'op');
  return 'reasons' in plan ? plan.reasons.join('; ') : '';
}

function planned(change: Partial<ChangeFacts> = {}) {
  const plan = planChange(facts(change), 'op');
  if ('reasons' in plan) throw new Error(plan.reasons.join());
  return plan;
}

test('every disk of the template and every overlay on it gets a new file beside it', () => {
  const plan = planned();
  expect(plan.disks.map(({ to, changed }) => [to, changed.path])).toEqual([
    ['/pool/a', '/pool/one.a'],
    ['/pool/b', '/pool/one.b'],
  ]);
  expect(plan.overlays.map(({ to, backing }) => [to, backing.path])).toEqual([
    ['/pool/one.a', '/pool/a'],
    ['/pool/one.b', '/pool/b'],
    ['/pool/two.a', '/pool/a'],
    ['/pool/two.b', '/pool/b'],
  ]);
  const made = [...plan.disks, ...plan.overlays].map(({ from }) => from);
  expect(new Set(made).size).toBe(6);
  for (const path of made) expect(path).toMatch(/^\/pool\/\.virtkeep-op-\d\.new$/);
});

test('a grown disk makes the others grow, and one that is larger stays so', () => {
  const plan = planned({ clones: [cloneOf('one', {}, [150, 100]), cloneOf('two', {}, [120, 300])] });
  expect(plan.overlays.map(({ virtualSize }) => virtualSize)).toEqual([150, 100, 150, 300]);
});

test('a disk that the clone does not have stays in the template; one of its own stays with it', () => {
  const [first] = cloneOf('one').disks;
  const plan = planned({
    clones: [member('one', [first!, disk('vdc', [layer('/pool/own')])]), cloneOf('two')],
  });
  expect(plan.disks.map(({ targetDev }) => targetDev)).toEqual(['vda']);
  expect(plan.overlays.map(({ to }) => to)).toEqual(['/pool/one.a', '/pool/two.a', '/pool/two.b']);
  expect(plan.warnings.join()).toContain('vdb of the template');
});

describe('a reason is', () => {
  const deep = member('one', [disk('vda', [layer('/pool/x'), layer('/pool/one.a'), layer('/pool/a')])]);
  const direct = member('one', [disk('vda', [layer('/pool/a')])]);
  const lent = {
    ...NO_METADATA,
    loans: [{ diskId: 'd', borrowerId: 'b' }],
    parent: { id: 'gold', version: 2 },
  };
  const merging = {
    ...NO_METADATA,
    looseLayers: [{ targetDev: 'vda', path: '/x', overlay: true }],
    parent: { id: 'gold', version: 2 },
  };
  const stale = { ...NO_METADATA, parent: { id: 'gold', version: 1 } };
  test.each<[string, Partial<ChangeFacts>, string]>([
    ['a running clone', { clones: [cloneOf('one'), cloneOf('two', { running: true })] }, 'two is running'],
    ['a running template', { template: golden({ running: true }) }, 'gold is running'],
    ['saved memory', { clones: [cloneOf('one', { managedSave: true })] }, 'one has its memory saved'],
    ['saved states', { clones: [cloneOf('one', { states: ['s'] })] }, 'one has saved states (s)'],
    ['a pending merge', { clones: [cloneOf('one', { metadata: merging })] }, 'is not merged yet'],
    ['a loan', { clones: [cloneOf('one', { metadata: lent })] }, 'disks of one are lent'],
    ['another version', { clones: [cloneOf('one', { metadata: stale })] }, 'was made of version 1'],
    ['an unmarked template', { template: golden({ metadata: NO_METADATA }) }, 'not marked as a template'],
    ['another user of a file', { foreign: new Map([['/pool/b', 'the domain x']]) }, 'used by the domain x'],
    ['a place that cannot be written', { refusalOf: () => 'It is read-only.' }, 'It is read-only'],
    ['more layers', { clones: [deep] }, 'has more than one layer of its own'],
    ["the template's own file", { clones: [direct] }, "is the template's own file"],
    ['nothing to change', { clones: [member('one', [])] }, 'no disk of the clone stands on'],
    [
      'a device',
      { template: golden({ disks: [disk('vda', [layer('/pool/a')], { block: true })] }) },
      'is a device',
    ],
    [
      'encryption',
      { template: golden({ disks: [disk('vda', [layer('/pool/a', 100, { encrypted: true })])] }) },
      'is encrypted',
    ],
    ['an unreadable disk', { clones: [cloneOf('one'), member('two', [disk('vdq', [])])] }, 'vdq of two'],
  ])('%s', (_what, change, text) => {
    expect(reasons(change)).toContain(text);
  });

  test('not the only one told', () => {
    const clones = [cloneOf('one', { running: true, states: ['s'] }), cloneOf('two', { managedSave: true })];
    const told = reasons({ clones, template: golden({ running: true }) });
    for (const text of ['gold is running', 'one is running', 'one has saved states', 'two has its memory'])
      expect(told).toContain(text);
  });
});
