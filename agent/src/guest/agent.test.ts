import { expect, test } from '@jest/globals';
import { type Domain, DomainStateCode } from '@virtkeep/node-libvirt';
import type { Logger } from '@virtkeep/shared/log';
import { ensureThawed } from './agent.ts';

const SILENT = { info() {}, warn() {} } as unknown as Logger;
const OPERATION_INVALID = 55;

/** A frozen guest; libvirt asks its agent only while it runs. */
function frozenGuest(state: number) {
  const guest = { state, frozen: true };
  const refused = Object.assign(new Error('domain is not running'), {
    name: 'LibvirtError',
    is: (code: number) => code === OPERATION_INVALID,
  });
  const domain = {
    uuid: 'id',
    name: 'vm',
    isActive: async () => guest.state !== DomainStateCode.SHUTOFF,
    state: async () => ({ state: guest.state }),
    agentCommand: async () => {
      if (guest.state !== DomainStateCode.RUNNING) throw refused;
      return JSON.stringify({ return: guest.frozen ? 'frozen' : 'thawed' });
    },
    thaw: async () => {
      guest.frozen = false;
    },
  };
  return { guest, domain: domain as unknown as Domain };
}

test.each([DomainStateCode.PAUSED, DomainStateCode.PMSUSPENDED])(
  'a guest that stands still (%d) may be frozen: it is thawed when it goes on',
  async state => {
    const { guest, domain } = frozenGuest(state);
    await expect(ensureThawed(domain, AbortSignal.timeout(10), SILENT)).rejects.toMatchObject({
      msgKey: 'guest_thaw_failed',
    });
    guest.state = DomainStateCode.RUNNING;
    await ensureThawed(domain, AbortSignal.timeout(60_000), SILENT);
    expect(guest.frozen).toBe(false);
  },
);

test('one that is switched off while it is asked is frozen no more', async () => {
  const { guest, domain } = frozenGuest(DomainStateCode.RUNNING);
  domain.isActive = async () => {
    guest.state = DomainStateCode.SHUTOFF;
    return true;
  };
  await ensureThawed(domain, AbortSignal.timeout(60_000), SILENT);
});
