import { describe, expect, test } from '@jest/globals';
import { ErrorCode, type ErrorFields, LibvirtError } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { fromDomain } from './domains.ts';
import { fromLibvirt, hasNoSlot, isPassing } from './errors.ts';

const URI = 'qemu:///system';

function libvirtError(fields: Partial<ErrorFields>, uri?: string): LibvirtError {
  const all = { code: 1, domain: 10, message: 'it said so', level: 2, kind: 'libvirt' as const, ...fields };
  return new LibvirtError(all, 'virDomainGetXMLDesc', uri === undefined ? {} : { uri });
}

test.each([
  ['internal error: No more available PCI slots', true],
  ['внутренняя ошибка: Нет доступных слотов PCI', true],
  [
    "internal error: unable to execute QEMU command 'device_add': PCI: slot 3 function 0 not available",
    false,
  ],
  [
    "internal error: unable to execute QEMU command 'blockdev-add': Could not open '/srv/PCI-DSS/x.qcow2'",
    false,
  ],
  ['internal error: something else', false],
])('%s: no slot is left: %s', (message, isFull) => {
  expect(hasNoSlot(libvirtError({ message }))).toBe(isFull);
});

describe("libvirt's errors as the product's", () => {
  test.each(['connection', 'closed', 'busy'] as const)('%s: libvirt cannot be reached', kind => {
    const error = fromLibvirt(libvirtError({ kind }, URI), 'backup');
    expect(error).toMatchObject({
      msgKey: 'libvirt_unreachable',
      params: { uri: URI, reason: 'it said so' },
    });
  });

  test('a lost daemon is the same error whoever asked', () => {
    const lost = libvirtError({ kind: 'connection', code: 38, domain: 7 }, URI);
    const { msgKey, params } = fromDomain(lost, 'some-id', 'power');
    expect(fromLibvirt(lost, 'backup')).toMatchObject({ msgKey, params });
  });

  test("libvirt's own answer names the call, or what was done", () => {
    const { params } = fromLibvirt(libvirtError({}), 'backup');
    expect(params).toMatchObject({ call: 'virDomainGetXMLDesc', reason: 'it said so' });
    expect(fromLibvirt(new Error('no room'), 'backup').params).toMatchObject({ call: 'backup' });
  });

  test('who stopped waiting has canceled', () => {
    expect(fromLibvirt(libvirtError({ kind: 'aborted' }), 'backup').msgKey).toBe('canceled');
  });

  test("the product's own errors stay as they are", () => {
    const own = new VirtkeepError('canceled');
    expect(fromDomain(own, 'some-id', 'backup')).toBe(own);
  });

  test('no such domain', () => {
    const error = fromDomain(libvirtError({ code: ErrorCode.NO_DOMAIN }), 'some-id', 'backup');
    expect(error).toMatchObject({ msgKey: 'domain_not_found', params: { id: 'some-id' } });
  });

  test.each([
    [libvirtError({ kind: 'connection' }), true],
    [libvirtError({ kind: 'timeout' }), true],
    [libvirtError({ code: ErrorCode.OPERATION_TIMEOUT }), true],
    [libvirtError({ code: ErrorCode.OPERATION_INVALID }), false],
    [libvirtError({ kind: 'closed' }), false],
    [new Error('no room'), false],
  ])('may work in a moment (%#)', (error, passes) => {
    expect(isPassing(error)).toBe(passes);
  });
});
