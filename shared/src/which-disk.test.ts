import { describe, expect, test } from '@jest/globals';
import { Disk, Domain } from './gen/virtkeep/agent/v1/domain.ts';
import { diskOf, knownDomains, whichAttachment, whichDisk } from './which-disk.ts';

const disk = (id: string, path: string, backingChain: string[] = []) =>
  Disk.fromPartial({ id, path, backingChain });
const base = Domain.fromPartial({ id: 'b', name: 'base', template: true, disks: [disk('b1', '/b1')] });
const template = Domain.fromPartial({
  id: 't',
  name: 'tpl',
  parentId: 'b',
  template: true,
  disks: [disk('t1', '/t1', ['/b1'])],
});
const clone = Domain.fromPartial({
  id: 'c',
  name: 'clone',
  parentId: 't',
  disks: [disk('c1', '/c1.state', ['/c1', '/t1', '/b1']), disk('c2', '/c2')],
});
const plain = Domain.fromPartial({ id: 'p', name: 'plain', disks: [disk('p1', '/p1')] });
const all = [base, template, clone, plain];
const ask = (diskId: string, thinCloneId = '') => ({ diskId, thinCloneId });

describe('whichDisk', () => {
  test.each([
    ['its own id', 'c1', 'c1'],
    ["its template's disk", 't1', 'c1'],
    ["the disk of its template's template", 'b1', 'c1'],
    ['a disk that stands on no template', 'c2', 'c2'],
  ])('of a thin clone, named by %s', (_, id, found) => {
    expect(whichDisk(knownDomains(all), ask(id, 'c'))).toEqual({
      owner: clone,
      disk: clone.disks.find(own => own.id === found),
      thinClone: true,
    });
  });

  test('a thin clone without its template is known by its own id, its template without it by its own', () => {
    expect(whichDisk(knownDomains([clone]), ask('c1', 'c'))).toMatchObject({
      owner: { id: 'c' },
      thinClone: true,
    });
    expect(whichDisk(knownDomains([clone]), ask('t1', 'c'))).toEqual({ fault: 'no_disk' });
    expect(whichDisk(knownDomains([clone]), ask('c1'))).toMatchObject({
      owner: { id: 'c' },
      thinClone: false,
    });
    expect(whichDisk(knownDomains([template]), ask('t1'))).toMatchObject({ owner: { id: 't' } });
  });

  test('not named, its disk is passed over for the one of its template; on zfs it is its own', () => {
    expect(whichDisk(knownDomains(all), ask('c1'))).toEqual({
      owner: template,
      disk: template.disks[0],
      thinClone: false,
      passedOver: { owner: clone, disk: clone.disks[0] },
    });
    expect(whichDisk(knownDomains(all), ask('c1'), true)).toEqual({
      owner: clone,
      disk: clone.disks[0],
      thinClone: true,
    });
    expect(whichDisk(knownDomains(all), ask('p1'), true)).toEqual({
      owner: plain,
      disk: plain.disks[0],
      thinClone: false,
    });
  });

  test('an own disk comes before one that stands on the disk of that id', () => {
    const two = Domain.fromPartial({ id: 'two', disks: [disk('x', '/x', ['/y']), disk('y', '/y2')] });
    expect(diskOf(two, 'y', disk('y', '/y'))?.path).toBe('/y2');
  });

  test.each([
    ['x', '', { fault: 'no_disk' }],
    ['x', 'c', { fault: 'no_disk' }],
    ['p1', 'c', { fault: 'not_its_disk', owner: clone }],
    ['t1', 'x', { fault: 'no_domain' }],
    ['p1', 'p', { fault: 'no_thin_clone', owner: plain }],
  ])('%s with thin clone "%s": %o', (id, thinClone, fault) => {
    expect(whichDisk(knownDomains(all), ask(id, thinClone))).toEqual(fault);
  });
});

describe('whichAttachment', () => {
  const attached = (diskId: string, ownerId: string) => ({ diskId, ownerId, thinClone: ownerId === 'c' });
  const meant = (attachments: ReturnType<typeof attached>[], id: string, thinClone = '') => {
    const borrower = Domain.fromPartial({ id: 'r', attachments });
    const found = whichAttachment(knownDomains([...all, borrower]), borrower, ask(id, thinClone));
    return found && `${found.diskId} of ${found.ownerId}`;
  };

  test('of a template’s disk and its thin clone’s by the same name, the one that attach would mean', () => {
    for (const both of [
      [attached('t1', 'c'), attached('t1', 't')],
      [attached('t1', 't'), attached('t1', 'c')],
    ]) {
      expect(meant(both, 't1')).toBe('t1 of t');
      expect(meant(both, 't1', 'c')).toBe('t1 of c');
      expect(meant(both, 'c1', 'c')).toBe('t1 of c');
    }
  });

  test('what was attached by one name goes by each other one', () => {
    expect(meant([attached('c1', 'c')], 't1', 'c')).toBe('c1 of c');
    expect(meant([attached('t1', 'c')], 'c1')).toBe('t1 of c');
    expect(meant([attached('t1', 't')], 'c1')).toBe('t1 of t');
    expect(meant([attached('c1', 'c')], 't1')).toBeUndefined();
  });

  test('of an owner that is not known here the name that was given is all there is', () => {
    expect(meant([attached('z1', 'z')], 'z1')).toBe('z1 of z');
    expect(meant([attached('z1', 'z')], 'z1', 'c')).toBeUndefined();
    expect(meant([], 'z1')).toBeUndefined();
  });
});
