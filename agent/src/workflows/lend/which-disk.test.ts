import { describe, expect, test } from '@jest/globals';
import { Disk, Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { diskToLend, loanToEnd } from './which-disk.ts';

const disk = (id: string, path: string, backingChain: string[] = []) =>
  Disk.fromPartial({ id, path, backingChain });
const template = Domain.fromPartial({ id: 't', name: 'tpl', template: true, disks: [disk('t1', '/t1')] });
const clone = Domain.fromPartial({
  id: 'c',
  name: 'clone',
  parentId: 't',
  disks: [disk('c1', '/c1', ['/t1']), disk('c2', '/c2')],
});
const plain = Domain.fromPartial({
  id: 'p',
  name: 'plain',
  disks: [disk('p1', '/p1.state', ['/p1'])],
  loans: [{ diskId: 'p1', borrowerId: 'b' }],
});
const all = [template, clone, plain];
const ask = (diskId: string, thinCloneId = '') => ({ diskId, thinCloneId });

describe('diskToLend', () => {
  test.each([
    ['p1', '', 'p', 'p1', false],
    ['t1', '', 't', 't1', false],
    ['c2', '', 'c', 'c2', false],
    ['c1', 'c', 'c', 'c1', true],
    ['t1', 'c', 'c', 'c1', true],
    ['c2', 'c', 'c', 'c2', true],
  ])('%s with thin clone "%s" is %s of %s', (...row) => {
    const [id, thinClone, owner, found, thin] = row;
    const chosen = diskToLend(all, ask(id, thinClone), false);
    expect([chosen.owner.id, chosen.disk.id, chosen.thinClone]).toEqual([owner, found, thin]);
    expect(chosen.warnings).toEqual([]);
  });

  test("a thin clone's disk without thin_clone is its template's, and the answer says so", () => {
    const chosen = diskToLend(all, ask('c1'), false);
    expect([chosen.owner.id, chosen.disk.id]).toEqual(['t', 't1']);
    expect(chosen.warnings[0]).toContain('clone');
  });

  test('on zfs it is its own, with thin_clone and without', () => {
    for (const thinClone of ['', 'c']) {
      const chosen = diskToLend(all, ask('c1', thinClone), true);
      expect(chosen).toMatchObject({ owner: { id: 'c' }, disk: { id: 'c1' }, thinClone: true, warnings: [] });
    }
    expect(diskToLend(all, ask('p1'), true)).toMatchObject({ owner: { id: 'p' }, thinClone: false });
  });

  test.each([
    ['x', '', 'vdisk_not_found'],
    ['p1', 'c', 'vdisk_not_found'],
    ['t1', 'x', 'domain_not_found'],
    ['p1', 'p', 'not_thin_clone'],
  ])('%s with thin clone "%s": %s', (id, thinClone, msgKey) => {
    expect(() => diskToLend(all, ask(id, thinClone), false)).toThrow(expect.objectContaining({ msgKey }));
  });
});

describe('loanToEnd', () => {
  const attachment = (diskId: string, ownerId: string, attachedId: string) => ({
    diskId,
    ownerId,
    attachedId,
    targetDev: 'vdb',
    path: '/x',
    thinClone: false,
    detaching: false,
  });
  const borrower = (...attachments: ReturnType<typeof attachment>[]) =>
    Domain.fromPartial({ id: 'b', name: 'borrower', attachments });
  const never = () => false;

  test('the id of the original means it', () => {
    const found = loanToEnd(all, borrower(attachment('p1', 'p', 'a1')), ask('p1'), never);
    expect(found).toEqual({ diskId: 'p1', ownerId: 'p', keepClone: false });
  });

  test('the same request as to attach means the same disk', () => {
    const ofClone = borrower(attachment('c1', 'c', 'a1'));
    expect(loanToEnd(all, ofClone, ask('t1', 'c'), never).diskId).toBe('c1');
    expect(loanToEnd(all, ofClone, ask('c1', 'c'), never).diskId).toBe('c1');
    expect(loanToEnd(all, borrower(attachment('t1', 't', 'a1')), ask('c1'), never).diskId).toBe('t1');
  });

  test('the id of the attached object is refused, that of a clone keeps the clone', () => {
    const one = borrower(attachment('p1', 'p', 'a1'));
    expect(() => loanToEnd(all, one, ask('a1'), never)).toThrow(
      expect.objectContaining({ msgKey: 'attached_object_given', params: { value: 'a1', disk: 'p1' } }),
    );
    expect(loanToEnd(all, one, ask('a1'), () => true)).toMatchObject({ diskId: 'p1', keepClone: true });
  });

  test('a loan without an attachment is ended by the same request', () => {
    expect(loanToEnd(all, borrower(), ask('p1'), never)).toMatchObject({ diskId: 'p1', ownerId: 'p' });
  });

  test('what is not attached is told', () => {
    for (const request of [ask('c2'), ask('unknown'), ask('p1', 'c')])
      expect(() => loanToEnd(all, borrower(), request, never)).toThrow(
        expect.objectContaining({ msgKey: 'vdisk_not_attached' }),
      );
  });
});
