import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, jest, test } from '@jest/globals';
import { systemdNotifier, watchdogIntervalMs } from './systemd.ts';

describe('without systemd', () => {
  test('all calls do nothing', () => {
    const notifier = systemdNotifier({});
    expect(() => {
      notifier.ready();
      notifier.status('x');
      notifier.stopping();
      notifier.close();
    }).not.toThrow();
  });
});

describe('with systemd', () => {
  test('the watchdog is fed from ready on, at half its interval, until close', () => {
    jest.useFakeTimers();
    const sent: string[] = [];
    const notifier = systemdNotifier({ WATCHDOG_USEC: '2000000' }, state => sent.push(state));
    jest.advanceTimersByTime(5_000);
    expect(sent).toEqual([]);
    notifier.ready();
    jest.advanceTimersByTime(2_000);
    notifier.stopping();
    jest.advanceTimersByTime(1_000);
    notifier.close();
    jest.advanceTimersByTime(5_000);
    expect(sent).toEqual(['READY=1', 'WATCHDOG=1', 'WATCHDOG=1', 'WATCHDOG=1', 'STOPPING=1', 'WATCHDOG=1']);
    jest.useRealTimers();
  });

  test('a status is one line', () => {
    const sent: string[] = [];
    systemdNotifier({}, state => sent.push(state)).status('two\nlines');
    expect(sent).toEqual(['STATUS=two lines']);
  });

  test('no watchdog without an interval, with a broken one, or for another process', () => {
    expect(watchdogIntervalMs({})).toBeUndefined();
    expect(watchdogIntervalMs({ WATCHDOG_USEC: 'x' })).toBeUndefined();
    expect(watchdogIntervalMs({ WATCHDOG_USEC: '0' })).toBeUndefined();
    expect(watchdogIntervalMs({ WATCHDOG_USEC: '2000000', WATCHDOG_PID: '1' })).toBeUndefined();
    expect(watchdogIntervalMs({ WATCHDOG_USEC: '2000000', WATCHDOG_PID: String(process.pid) })).toBe(1_000);
  });

  test('libsystemd really sends to the socket', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'vk-notify-'));
    const path = join(dir, 'notify');
    const listener = [
      'import socket,sys',
      's=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM); s.bind(sys.argv[1]); s.settimeout(240)',
      'print(s.recv(100).decode())',
    ].join('\n');
    const python = spawn('python3', ['-c', listener, path], { stdio: ['ignore', 'pipe', 'inherit'] });
    let output = '';
    python.stdout.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
    try {
      while (!existsSync(path)) await new Promise(resolve => setTimeout(resolve, 20));
      // a process of its own: the library reads the real environment, not the one of the test
      const module = new URL('./systemd.ts', import.meta.url);
      const daemon = `import { systemdNotifier } from '${module}'; systemdNotifier().ready();`;
      const argv = ['--input-type=module', '-e', daemon];
      spawn(process.execPath, argv, { stdio: 'inherit', env: { ...process.env, NOTIFY_SOCKET: path } });
      await new Promise(resolve => python.once('close', resolve));
      expect(output.trim()).toBe('READY=1');
    } finally {
      python.kill('SIGKILL');
      rmSync(dir, { recursive: true, force: true });
    }
  });
});
