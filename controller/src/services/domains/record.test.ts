import { describe, expect, test } from '@jest/globals';
import { AgentState, Attachment, Domain, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Role } from '@virtkeep/shared/permissions';
import type { Principal } from '../../auth/principal.ts';
import { entryOf } from '../inventory/test-kit.ts';
import { type DomainContext, domainPermissions, domainRecord } from './record.ts';

const viewer = (role: Role): Principal => ({
  id: 'u',
  number: 1,
  username: 'u',
  role,
  jti: 'j',
  kind: 'session',
  family: 'x',
  familyEndsOn: new Date(),
  expiresOn: new Date(),
});
const context = (part: Partial<DomainContext['node']> = {}, role: Role = 'administrator'): DomainContext => ({
  node: { id: 'n', verbose_name: 'node', connected: true, service: false, ...part },
  parentName: null,
  hasClones: false,
  tags: [],
  viewer: viewer(role),
});
const domain = (part: Partial<Domain> = {}) =>
  Domain.fromPartial({
    id: 'd',
    name: 'vm',
    powerState: PowerState.RUNNING,
    agentState: AgentState.CONNECTED,
    ...part,
  });
const allowed = (part: Partial<Domain>, where = context()) =>
  Object.entries(domainPermissions(domain(part), where))
    .filter(([, may]) => may)
    .map(([action]) => action);

describe('permissions', () => {
  test('follow the power state', () => {
    expect(allowed({})).toEqual([
      'shutdown',
      'reboot',
      'suspend',
      'reset',
      'update',
      'remove',
      'snapshot',
      'backup',
      'guest_command',
      'guest_operation',
      'attach_vdisk',
    ]);
    expect(allowed({ powerState: PowerState.OFF })).toEqual([
      'start',
      'update',
      'rename',
      'template',
      'clone',
      'remove',
      'snapshot',
      'backup',
      'guest_operation',
      'attach_vdisk',
    ]);
    expect(allowed({ powerState: PowerState.SUSPENDED })).toContain('resume');
  });

  test('a template is not started, a VM with mediated devices is backed up off only', () => {
    expect(allowed({ powerState: PowerState.OFF, template: true })).not.toContain('start');
    expect(allowed({ mdevs: ['m'] })).not.toContain('backup');
    expect(allowed({ mdevs: ['m'], powerState: PowerState.OFF })).toContain('backup');
  });

  test('while its disks are lent nothing may change them', () => {
    const loans = [{ diskId: 'k', borrowerId: 'b', borrowerNodeId: '', mark: '' }];
    expect(allowed({ loans })).toEqual([
      'shutdown',
      'reboot',
      'suspend',
      'reset',
      'update',
      'guest_command',
      'guest_operation',
      'attach_vdisk',
    ]);
    const off = allowed({ loans, powerState: PowerState.OFF });
    expect(off).toEqual(['start', 'update', 'clone', 'backup', 'attach_vdisk']);
  });

  test('a VM with a disk of another one may give it back; a lent disk hinders nothing else', () => {
    const attachments = [Attachment.fromPartial({ diskId: 'k', ownerId: 'o' })];
    expect(allowed({ attachments })).toEqual([...allowed({}), 'detach_vdisk']);
  });

  test('a template with thin clones stays as it is; a thin clone can change its template', () => {
    const template = { powerState: PowerState.OFF, template: true };
    const withClones = { ...context(), hasClones: true };
    expect(allowed(template, withClones)).toEqual(['update', 'rename', 'clone', 'backup', 'attach_vdisk']);
    expect(allowed(template)).toContain('remove');
    expect(allowed({ powerState: PowerState.OFF, parentId: 't' })).toContain('change_template');
    expect(allowed({ parentId: 't' })).not.toContain('change_template');
  });

  test('a held domain, an absent node and service mode allow nothing that changes it', () => {
    expect(allowed({ lockedBy: 'task' })).toEqual(['update', 'guest_command']);
    expect(allowed({}, context({ connected: false }))).toEqual([]);
    expect(allowed({}, context({ service: true }))).toEqual([]);
  });

  test('follow the role', () => {
    expect(allowed({}, context({}, 'backup_service'))).toEqual(['backup', 'attach_vdisk']);
    expect(allowed({}, context({}, 'auditor'))).toEqual([]);
  });
});

test('what only the node knows is undefined while it is away', () => {
  const entry = entryOf(domain(), 'n');
  expect(domainRecord(entry, context({ connected: false }))).toMatchObject({
    status: 'FAILED',
    user_power_state: 0,
    guest_utils: { qemu_state: false },
  });
  expect(domainRecord(entry, context())).toMatchObject({ status: 'ACTIVE', user_power_state: 3 });
});

describe('the operating system', () => {
  const told = (part: Partial<Domain>) => {
    const record = domainRecord(entryOf(domain(part), 'n'), context());
    return [record.os_type, record.os_version];
  };
  const guest = (id: string, versionId: string) => ({ guestInfo: { os: { id, versionId } } }) as never;

  test('is what the definition says', () => {
    const defined = { osType: 'Linux', osVersion: 'debian/12' };
    expect(told({ ...defined, ...(guest('mswindows', '10') as object) })).toEqual(['Linux', 'debian/12']);
  });

  test.each([
    ['debian', '12', 'Linux', 'debian/12'],
    ['arch', '', 'Linux', 'arch'],
    ['mswindows', '2019', 'Windows', 'win/2019'],
    ['freebsd', '14.1', 'Other', 'freebsd/14.1'],
    ['', '', 'Other', ''],
  ])('else what the guest tells: %s %s', (id, versionId, type, version) => {
    expect(told({ osType: 'Other', ...(guest(id, versionId) as object) })).toEqual([type, version]);
  });

  test('is unknown while nobody told', () => expect(told({ osType: 'Other' })).toEqual(['Other', '']));
});
