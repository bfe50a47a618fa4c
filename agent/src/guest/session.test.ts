import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import { type Domain, DomainStateCode } from '@virtkeep/node-libvirt';
import { guestCommand } from './session.ts';

const AGENT = { domain: 10, kind: 'libvirt' };
/** Errors as libvirt gives them: 9.0, and where they differ 11.3. */
function libvirtError(code: number, message: string, more: object = AGENT): Error {
  const is = (wanted: number) => wanted === code;
  return Object.assign(new Error(message), { name: 'LibvirtError', code, call: 'c', is, ...more });
}
const refused = (text: string, command = 'guest-x') =>
  libvirtError(1, `internal error: unable to execute QEMU agent command '${command}': ${text}`);

let lastId = 0;
/** A domain whose agent calls end so. */
function domainOf(outcome: (command: string) => unknown, state: number = DomainStateCode.RUNNING) {
  const commands: string[] = [];
  const domain = {
    uuid: `id-${++lastId}`,
    name: 'vm',
    state: async () => ({ state }),
    agentCommand: async (request: string) => {
      const { execute } = JSON.parse(request) as { execute: string };
      commands.push(execute);
      const value = await outcome(execute);
      if (value instanceof Error || (value as Error)?.name === 'LibvirtError') throw value;
      return JSON.stringify({ return: value });
    },
  };
  return { domain: domain as unknown as Domain, commands };
}

describe('errors', () => {
  const SILENT = libvirtError(86, 'Guest agent is not responding: Guest agent not available for now');
  test.each([
    [libvirtError(42, 'Domain not found'), 'domain_not_found'],
    [libvirtError(74, 'argument unsupported: QEMU guest agent is not configured'), 'guest_no_channel'],
    [
      libvirtError(86, 'Guest agent is not responding: QEMU guest agent is not connected'),
      'guest_agent_disconnected',
    ],
    [libvirtError(86, 'QEMU guest agent is not available due to an error'), 'guest_agent_disconnected'],
    [libvirtError(38, 'No complete agent response found in 10485760 bytes'), 'guest_agent_disconnected'],
    [libvirtError(1, 'internal error: End of file from agent socket'), 'guest_agent_disconnected'],
    [SILENT, 'guest_agent_silent'],
    [libvirtError(97, 'unsynced'), 'guest_agent_silent'],
    [libvirtError(68, 'cannot acquire state change lock'), 'guest_agent_busy'],
    [libvirtError(68, 'no answer within 5 ms', { kind: 'timeout', is: () => false }), 'guest_agent_silent'],
    [libvirtError(38, 'gone', { kind: 'connection', is: () => false }), 'libvirt_unreachable'],
    [libvirtError(9, 'something else'), 'libvirt_failed'],
    [refused('The command guest-x has not been found'), 'guest_command_unknown'],
    [refused('Command guest-x has been disabled for this instance'), 'guest_command_disabled'],
    [refused('Command guest-x has been disabled: the agent is in frozen state'), 'guest_frozen'],
    [refused("Guest agent command failed, error was 'no way'"), 'guest_agent_failed'],
    [refused('device not connected'), 'guest_agent_failed'],
    [libvirtError(112, "guest agent didn't respond to command within '5' seconds"), 'guest_agent_silent'],
    [
      libvirtError(113, "unable to execute QEMU agent command 'guest-x': Command guest-x has been disabled"),
      'guest_command_disabled',
    ],
  ])('%s is %s', async (error, msgKey) => {
    await expect(guestCommand(domainOf(() => error).domain, 'guest-x')).rejects.toMatchObject({ msgKey });
  });

  const UNKNOWN = 'The command guest-x has not been found';
  test.each([
    [113, `не удалось выполнить команду агента QEMU «guest-x»: ${UNKNOWN}`, 'guest_command_unknown'],
    [
      1,
      `внутренняя ошибка: не вдалося виконати команду агента QEMU «guest-x»: ${UNKNOWN}`,
      'guest_command_unknown',
    ],
    [1, `nedaří se vykonat příkaz QEMU agenta „guest-x“: ${UNKNOWN}`, 'guest_command_unknown'],
    [1, `QEMU エージェントコマンド 'guest-x' を実行できません: ${UNKNOWN}`, 'guest_command_unknown'],
    [1, `无法执行 QEMU 代理命令 'guest-x'：${UNKNOWN}`, 'guest_command_unknown'],
    [113, `impossible d'exécuter la commande « guest-x » de l'agent : ${UNKNOWN}`, 'guest_command_unknown'],
    [113, `‚guest-x‘: Command guest-x has been disabled`, 'guest_command_disabled'],
    [113, 'не удалось выполнить команду', 'guest_agent_failed'],
    [1, 'внутренняя ошибка: не удалось выполнить команду агента QEMU «guest-x»', 'guest_agent_failed'],
    [
      1,
      `внутренняя ошибка: не удалось разобрать JSON {"name": "guest-x", "n": "": lexical error`,
      'guest_agent_disconnected',
    ],
    [1, 'внутренняя ошибка: От сокета агента получен символ конца файла', 'guest_agent_disconnected'],
    [86, 'Агент гостя не отвечает: Агент гостевой системы QEMU не подключён', 'guest_agent_disconnected'],
  ])('of a libvirt that speaks another language: %i %s', async (code, message, msgKey) => {
    const { domain } = domainOf(() => libvirtError(code, message));
    await expect(guestCommand(domain, 'guest-x')).rejects.toMatchObject({ msgKey });
  });

  test('of a libvirt that speaks another language, of an agent that does not answer in time', async () => {
    const error = libvirtError(86, 'Агент гостя не отвечает: Агент гостя недоступен');
    const { domain } = domainOf(() => sleep(1000, error));
    await expect(guestCommand(domain, 'guest-x', {}, { timeoutMs: 1000 })).rejects.toMatchObject({
      msgKey: 'guest_agent_silent',
    });
  });

  test("the agent's own text is one line that no terminal obeys", async () => {
    const { domain } = domainOf(() => refused('no\r\n\u001b]0;x\u0007 \u202eway\u009b31m'));
    await expect(guestCommand(domain, 'guest-x')).rejects.toMatchObject({
      msgKey: 'guest_agent_failed',
      params: { reason: 'no ]0;x way 31m' },
    });
  });

  test.each([
    ['frozen', 'guest_frozen'],
    ['thawed', 'guest_command_disabled'],
  ])('a command that is disabled "in frozen state", of a guest that is %s, is %s', async (status, msgKey) => {
    const text = 'Command guest-get-devices has been disabled: the agent is in frozen state';
    const { domain } = domainOf(command =>
      command === 'guest-fsfreeze-status' ? status : refused(text, command),
    );
    await expect(guestCommand(domain, 'guest-get-devices')).rejects.toMatchObject({
      msgKey,
      params: { domain: 'vm', command: 'guest-get-devices' },
    });
  });

  test.each([
    [DomainStateCode.SHUTOFF, 'guest_off', 'off'],
    [DomainStateCode.PAUSED, 'guest_off', 'paused'],
    [DomainStateCode.PMSUSPENDED, 'guest_off', 'paused'],
    [DomainStateCode.RUNNING, 'guest_agent_disconnected', undefined],
  ])('a refusal by state %i is %s', async (state, msgKey, told) => {
    const { domain } = domainOf(() => libvirtError(55, 'domain is not running'), state);
    await expect(guestCommand(domain, 'guest-x')).rejects.toMatchObject({
      msgKey,
      params: { domain: 'vm', ...(told ? { state: told } : {}) },
    });
  });

  test('a slow command that ends its time is told from an agent that hangs', async () => {
    const { domain } = domainOf(command => (command === 'guest-ping' ? {} : SILENT));
    await expect(guestCommand(domain, 'guest-fstrim', {}, { timeoutMs: 7_000 })).rejects.toMatchObject({
      msgKey: 'guest_command_timed_out',
      params: { seconds: '7' },
    });
    await expect(guestCommand(domainOf(() => SILENT).domain, 'guest-fstrim')).rejects.toMatchObject({
      msgKey: 'guest_agent_silent',
    });
  });

  test('a program may run that an agent does not answer for that was alive right before', async () => {
    const { domain } = domainOf(command => (command === 'guest-ping' ? {} : SILENT));
    await expect(guestCommand(domain, 'guest-exec', { path: 'rm' })).rejects.toMatchObject({
      msgKey: 'guest_command_timed_out',
    });
  });

  test('an agent that hangs is given no program to run when it goes on', async () => {
    const { domain, commands } = domainOf(() => SILENT);
    await expect(guestCommand(domain, 'guest-exec', { path: 'rm' })).rejects.toMatchObject({
      msgKey: 'guest_agent_silent',
    });
    expect(commands).toEqual(['guest-ping']);
  });

  test.each([
    ['9', SILENT],
    ['11', libvirtError(112, "guest agent didn't respond to command within '20' seconds")],
  ])('the silence after a command without answer is its success: libvirt %s', async (_version, silent) => {
    const { domain, commands } = domainOf(command => (command === 'guest-ping' ? {} : silent));
    expect(await guestCommand(domain, 'guest-suspend-ram')).toEqual({});
    expect(commands).toEqual(['guest-ping', 'guest-suspend-ram']);
    const { domain: refusing } = domainOf(command =>
      command === 'guest-ping' ? {} : refused('not supported', command),
    );
    await expect(guestCommand(refusing, 'guest-suspend-ram')).rejects.toMatchObject({
      msgKey: 'guest_agent_failed',
    });
  });

  test('a guest that sleeps has consented: nobody waits for the end of the silence', async () => {
    const never = new Promise(() => undefined);
    const { domain } = domainOf(
      command => (command === 'guest-ping' ? {} : never),
      DomainStateCode.PMSUSPENDED,
    );
    expect(await guestCommand(domain, 'guest-suspend-ram', {}, { timeoutMs: 60_000 })).toEqual({});
  });

  test('a busy guest may take a while to refuse', async () => {
    const seconds: number[] = [];
    const { domain } = domainOf(() => ({}));
    const { agentCommand } = domain;
    domain.agentCommand = async (request, timeout) => {
      seconds.push(timeout ?? 0);
      return agentCommand(request);
    };
    await guestCommand(domain, 'guest-suspend-hybrid', {}, { timeoutMs: 60_000 });
    expect(seconds).toEqual([5, 20]);
  });
});

describe('commands of one guest', () => {
  test('run one after the other, those of two side by side', async () => {
    const order: string[] = [];
    const gates = new Map([
      ['a', Promise.withResolvers<void>()],
      ['b', Promise.withResolvers<void>()],
    ]);
    const { domain } = domainOf(async command => {
      order.push(`${command}+`);
      await gates.get(command)?.promise;
      order.push(`${command}-`);
      return {};
    });
    const first = guestCommand(domain, 'a');
    const second = guestCommand(domain, 'b');
    await guestCommand(domainOf(() => 'other').domain, 'c');
    expect(order).toEqual(['a+']);
    gates.get('b')!.resolve();
    gates.get('a')!.resolve();
    await Promise.all([first, second]);
    expect(order).toEqual(['a+', 'a-', 'b+', 'b-']);
  });

  test('wait for a while, then the guest is busy with the one that runs', async () => {
    const gate = Promise.withResolvers<void>();
    const { domain } = domainOf(() => gate.promise);
    const running = guestCommand(domain, 'guest-fsfreeze-status');
    await expect(guestCommand(domain, 'guest-ping', {}, { waitMs: 5 })).rejects.toMatchObject({
      msgKey: 'guest_agent_busy',
      params: { command: 'guest-fsfreeze-status' },
    });
    const leaving = new AbortController();
    const left = guestCommand(domain, 'guest-ping', {}, { signal: leaving.signal });
    leaving.abort();
    await expect(left).rejects.toMatchObject({ msgKey: 'canceled' });
    gate.resolve();
    await running;
  });

  test('are refused when more wait than may', async () => {
    const gate = Promise.withResolvers<void>();
    const { domain } = domainOf(() => gate.promise);
    const all = Array.from({ length: 40 }, () =>
      guestCommand(domain, 'guest-ping').then(
        () => 'done',
        error => error.msgKey,
      ),
    );
    gate.resolve();
    const ended = await Promise.all(all);
    expect(ended.filter(outcome => outcome === 'guest_agent_busy')).toHaveLength(7);
  });
});

test('a request that libvirt would not get rid of is refused, naming what is long', async () => {
  const { domain, commands } = domainOf(() => ({}));
  const args = { handle: 1, 'buf-b64': 'A'.repeat(140_000) };
  await expect(guestCommand(domain, 'guest-file-write', args)).rejects.toMatchObject({
    msgKey: 'guest_argument_invalid',
    params: { field: 'buf-b64' },
  });
  expect(commands).toEqual([]);
});

test('guest-sync-delimited is asked as guest-sync: libvirt breaks at its mark', async () => {
  const { domain, commands } = domainOf(() => 7);
  expect(await guestCommand(domain, 'guest-sync-delimited', { id: 7 })).toBe(7);
  expect(commands).toEqual(['guest-sync']);
});
