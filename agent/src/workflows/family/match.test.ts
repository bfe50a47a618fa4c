import { expect, test } from '@jest/globals';
import type { Manifest } from '../../archive/index.ts';
import { NO_METADATA } from '../../domain-xml/index.ts';
import { judgeTemplate, requireMatch, type TemplateDisk } from './match.ts';

const ID = '11111111-2222-4333-8444-555555555555';
const DISK = 'aaaaaaaa-2222-4333-8444-555555555555';
const PATH = `/pool/${DISK}.qcow2`;

const manifest = (base: object = {}, version: string | null = '2') =>
  ({
    template: { domainId: ID, name: 'golden', version },
    disks: [
      {
        target: 'vda',
        base: { path: PATH, format: 'qcow2', diskId: DISK, fingerprint: 'sha256:a', ...base },
      },
      { target: 'vdb', base: null },
    ],
  }) as unknown as Manifest;

const domain = (change: object = {}) => ({
  uuid: ID,
  name: 'golden',
  metadata: { ...NO_METADATA, template: true, templateVersion: 2, ...change },
});

const disk = (change: Partial<TemplateDisk> = {}): TemplateDisk => ({
  path: PATH,
  format: 'qcow2',
  fingerprint: 'sha256:a',
  ...change,
});

const faults = (...given: Parameters<typeof judgeTemplate>) =>
  judgeTemplate(...given).faults.map(({ key }) => key);

test('the same version and content fit, and give each disk its base', () => {
  expect(judgeTemplate(manifest(), domain(), [disk()])).toEqual({
    templateId: ID,
    bases: new Map([['vda', { path: PATH, format: 'qcow2' }]]),
    faults: [],
  });
});

test('a disk is found by its place, its id, or its content', () => {
  const moved = disk({ path: `/other/${DISK}.qcow2` });
  const renamed = disk({ path: '/other/renamed.qcow2' });
  for (const found of [moved, renamed])
    expect(
      judgeTemplate(manifest(), domain(), [disk({ path: '/x', fingerprint: 'sha256:x' }), found]).bases.get(
        'vda',
      ),
    ).toEqual({
      path: found.path,
      format: 'qcow2',
    });
});

test.each([
  ['another version', domain({ templateVersion: 3 }), [disk()], ['template_incompatible']],
  ['not a template any more', domain({ template: false }), [disk()], ['template_incompatible']],
  ['other content', domain(), [disk({ fingerprint: 'sha256:b' })], ['template_disk_mismatch']],
  ['an unreadable disk', domain(), [disk({ fingerprint: null })], ['template_disk_mismatch']],
  ['no such disk', domain(), [], ['template_disk_mismatch']],
  [
    'all of it',
    domain({ template: false, templateVersion: 9 }),
    [disk({ fingerprint: 'sha256:b' })],
    ['template_incompatible', 'template_incompatible', 'template_disk_mismatch'],
  ],
])('%s is told, and refused', (_what, config, disks, keys) => {
  expect(faults(manifest(), config, disks)).toEqual(keys);
  expect(() => requireMatch(manifest(), judgeTemplate(manifest(), config, disks), 'x.tar')).toThrow(
    expect.objectContaining({ msgKey: 'template_mismatch' }),
  );
});

test('a disk that was raw and is qcow2 now cannot be compared, which hinders nothing', () => {
  const found = judgeTemplate(manifest({ format: 'raw' }), domain(), [disk({ fingerprint: 'sha256:b' })]);
  expect(found.faults.map(({ key }) => key)).toEqual(['template_disk_unchecked']);
  expect(found.bases.get('vda')).toEqual({ path: PATH, format: 'qcow2' });
  expect(() => requireMatch(manifest(), found, 'x.tar')).not.toThrow();
});

test('a backup without fingerprints or version is told by what it has', () => {
  const old = manifest({ fingerprint: undefined }, null);
  expect(faults(old, domain({ templateVersion: 7 }), [disk({ fingerprint: 'sha256:b' })])).toEqual([]);
  expect(faults(old, domain(), [])).toEqual(['template_disk_mismatch']);
});
