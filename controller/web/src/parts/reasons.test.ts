import { expect, test } from '@jest/globals';
import type { BackupFile, Domain, Session, Task } from '../api/client.ts';
import { en } from '../texts/en.ts';
import { cancelReason, domainReason, fileReason } from './reasons.ts';

const session = (...permissions: string[]) => ({ role: 'operator', permissions }) as unknown as Session;
const operator = {
  texts: en,
  session: session('backup.create', 'domain.power', 'library.manage', 'task.cancel'),
};
const auditor = { texts: en, session: session() };
const domain = (part: Partial<Domain>) =>
  ({ permissions: [], user_power_state: 3, locked_by: null, template: false, ...part }) as unknown as Domain;
const file = (part: Partial<BackupFile>) =>
  ({
    permissions: [],
    status: 'ACTIVE',
    protected: false,
    compressed: false,
    additional_flags: { can_be_domained: true },
    ...part,
  }) as unknown as BackupFile;
const words = en.reasons;

test('what the controller offers has no reason against it, whatever else is so', () => {
  expect(
    domainReason('backup', domain({ permissions: ['backup'], locked_by: 'x' }), auditor),
  ).toBeUndefined();
  expect(fileReason('remove', file({ permissions: ['remove'], protected: true }), auditor)).toBeUndefined();
  expect(cancelReason({ permissions: ['cancel'] } as unknown as Task, auditor)).toBeUndefined();
});

test('of several reasons the one is told that would stay longest', () => {
  const locked = domain({ locked_by: 'x', user_power_state: 1 });
  expect(domainReason('shutdown', locked, auditor)).toBe(words.role('operator'));
  expect(domainReason('shutdown', locked, operator)).toBe(words.locked);
  expect(domainReason('shutdown', domain({ user_power_state: 1 }), operator)).toBe(words.off);
  expect(domainReason('start', domain({}), operator)).toBe(words.running);
  expect(domainReason('resume', domain({}), operator)).toBe(words.notSuspended);
  expect(domainReason('suspend', domain({ user_power_state: 2 }), operator)).toBe(words.notRunning);
  expect(domainReason('start', domain({ user_power_state: 1, template: true }), operator)).toBe(
    words.template,
  );
  expect(domainReason('backup', domain({}), operator)).toBe(words.unable);
});

test('a file says what about it is in the way', () => {
  expect(fileReason('remove', file({ protected: true }), operator)).toBe(words.protected);
  expect(fileReason('verify', file({ status: 'UPDATING' }), operator)).toBe(words.busy);
  expect(fileReason('compress', file({ compressed: true }), operator)).toBe(words.compressed);
  expect(fileReason('unpack', file({}), operator)).toBe(words.plain);
  expect(fileReason('verify', file({ status: 'MISSING' }), operator)).toBe(words.state);
  expect(fileReason('restore', file({}), operator)).toBe(words.role('operator'));
});

test('a task that cannot be stopped says so to whoever could', () => {
  const task = { permissions: [] } as unknown as Task;
  expect(cancelReason(task, operator)).toBe(words.notCancellable);
  expect(cancelReason(task, auditor)).toBe(words.role('operator'));
});
