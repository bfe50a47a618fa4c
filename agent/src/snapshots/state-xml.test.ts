import { expect, test } from '@jest/globals';
import { diskStates, savedStateOf, withKeptFile, withOverlays } from './state-xml.ts';

const domain = (source: string, more = '') =>
  `<domain type='kvm'><name>vm</name><uuid>11111111-2222-4333-8444-555555555555</uuid><devices>` +
  `<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='${source}'/>${more}<target dev='vda'/></disk>` +
  '</devices></domain>';
const state = (kept: string, overlay: string) =>
  `<domainsnapshot><name>s1</name><memory snapshot='external' file='/p//m.memory'/><disks>` +
  `<disk name='vda' snapshot='external' type='file'><source file='${overlay}'/></disk></disks>${domain(kept)}</domainsnapshot>`;

/** The headers of images name the same files as `/p/a.qcow2` and so on. */
test('files are known by one text, however the definition spells them', () => {
  const mirror = "<mirror type='file' job='active-commit' ready='yes'><source file='/p/./a.qcow2'/></mirror>";
  expect(diskStates(domain('//p/a.top', mirror)).get('vda')).toMatchObject({
    sourcePath: '/p/a.top',
    mirror: { path: '/p/a.qcow2' },
  });
  expect(savedStateOf(state('/p//a.qcow2', '/./p/a.top'), true)).toMatchObject({
    frozen: { vda: '/p/a.qcow2' },
    overlays: { vda: '/p/a.top' },
    memoryPath: '/p/m.memory',
  });
});

test('a state that keeps a file under another spelling gets the one in its place', () => {
  const to = { path: '/p/base.raw', format: 'raw', block: false };
  const next = withKeptFile(state('/p//a.qcow2', '/p/a.top'), '/p/a.qcow2', to);
  expect(savedStateOf(next, true).frozen).toEqual({ vda: '/p/base.raw' });
});

test('an overlay that a state knows under another spelling is not written anew', () => {
  const former = state('/p/a.qcow2', '/p//a.top');
  expect(withOverlays(former, { vda: '/p/a.top' })).toBe(withOverlays(former, {}));
  expect(savedStateOf(withOverlays(former, { vda: '/p/b.top' }), true).overlays).toEqual({ vda: '/p/b.top' });
});
