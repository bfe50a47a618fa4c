import { expect, test } from '@jest/globals';
import { lentDiskXml } from '../domain-xml/index.ts';
import type { SavedState } from './chain.ts';
import type { ChainPicture } from './merge/picture.ts';
import { revertRefusal } from './revert-plan.ts';

const [BASE, LAYER, OTHER, LENT] = ['/p/base', '/p/layer', '/p/other', '/p/lent'] as const;

/** An internal state in a disk of the domain, which may have had one of another domain, too. */
function innerState(frozen: string, lent = false): SavedState {
  const diskId = '5e0f5a7c-3a77-4d0a-9d4f-0d5b6c1f3a22';
  const disk = lentDiskXml({ diskId, path: LENT, format: 'raw', block: false, targetDev: 'vdb' });
  const domain = `<domain><name>vm</name><devices>${lent ? disk : ''}</devices></domain>`;
  return {
    name: 'inner', parent: null, current: true, description: '', createdUnix: 1, memory: 'internal', memoryPath: null,
    overlays: {}, frozen: { vda: frozen }, frozenFormats: { vda: 'qcow2' }, internalDisks: ['vda'], deleting: false,
    xml: `<domainsnapshot><name>inner</name>${domain}</domainsnapshot>`,
  }; // biome-ignore format: one record
}

const external = (frozen: string, overlay: string): SavedState => ({
  ...innerState(frozen),
  ...{ name: 'ext', memory: 'no', internalDisks: [], overlays: { vda: overlay } },
});

function picture(top: string, files: [string, string | null][], change: Partial<ChainPicture> = {}) {
  return {
    domainId: '5e0f5a7c-3a77-4d0a-9d4f-0d5b6c1f3a11', power: 'off', persistent: true, memorySaved: false, live: new Map(),
    config: new Map([['vda', top]]), states: [], automatic: [], files: new Map(files), inner: new Set([BASE]),
    empty: new Set(), since: new Map(), gone: new Set(), foreign: new Map(), saving: false,
    metadata: { template: false, templateVersion: 0, attachments: [] }, ...change,
  } as ChainPicture; // biome-ignore format: one record
}

const onBase: [string, string | null][] = [
  [BASE, null],
  [LAYER, BASE],
];

test.each([
  ['the disk is what it was', picture(BASE, [[BASE, null]]), BASE],
  ['another definition has the disk, too', picture(BASE, [[BASE, null]], { foreign: new Map([[BASE, 'x']]) }), BASE],
  ['an older state keeps what its disk stands on', picture(LAYER, onBase, { states: [external(BASE, LAYER)] }), LAYER],
])('libvirt may go back to an internal state: %s', (_what, now, frozen) => {
  expect(revertRefusal(now, innerState(frozen))).toBeNull();
}); // biome-ignore format: one line for each

test.each([
  ['a later state keeps its file', picture(LAYER, onBase, { states: [external(BASE, LAYER)] }), BASE, '"ext"'],
  ['a layer of nobody stands on its file', picture(LAYER, onBase), BASE, LAYER],
  ['its file was merged into the one below', picture(BASE, onBase), LAYER, 'no disk of the VM'],
  ['its file is gone', picture(OTHER, [[OTHER, null]]), BASE, 'no disk of the VM'],
  ['the disk was taken away', picture(OTHER, [[BASE, null], [OTHER, null]]), BASE, 'no disk of the VM'],
])('it must not: %s', (_what, now, frozen, why) => {
  expect(revertRefusal(now, innerState(frozen))).toContain(why);
}); // biome-ignore format: one line for each

test('it must not with a disk of another VM that was given back, and may while it is attached', () => {
  const now = (attachments: unknown[]) =>
    picture(BASE, [[BASE, null]], {
      metadata: { template: false, templateVersion: 0, attachments } as unknown as ChainPicture['metadata'],
    });
  expect(revertRefusal(now([]), innerState(BASE, true))).toContain(LENT);
  expect(revertRefusal(now([{ path: LENT }]), innerState(BASE, true))).toBeNull();
});
