import vm from 'node:vm';
import { ModernFakeTimers } from '@jest/fake-timers';
import { ModuleMocker } from 'jest-mock';

/** What jest asks of an environment, for tests that run in the worker's own (native.js). */
export default class NativeEnvironment {
  constructor({ projectConfig }) {
    // jest puts a console and a process.exit of its own there, one into another with every file
    this.global = Object.create(globalThis, { process: { value: Object.create(process) } });
    this.moduleMocker = new ModuleMocker(globalThis);
    this.fakeTimersModern = new ModernFakeTimers({ config: projectConfig, global: globalThis });
  }

  async setup() {}

  /** What a test failed at is told with what there was to see (test/lab/seen.ts): pages and logs cannot be looked at afterwards. */
  async handleTestEvent({ name, error }) {
    const isFailure = name === 'test_fn_failure' || name === 'hook_failure';
    if (!isFailure || !(error instanceof Error)) return;
    for (const tell of globalThis[Symbol.for('virtkeep.seen')] ?? []) {
      const seen = await tell();
      if (seen === '') continue;
      const text = `${error.message}\n\n${seen}`;
      error.stack = error.stack?.replace(error.message, () => text);
      error.message = text;
    }
  }

  async teardown() {
    this.moduleMocker.restoreAllMocks();
    this.fakeTimersModern.dispose();
  }

  exportConditions() {
    return ['node', 'node-addons'];
  }

  getVmContext() {
    this.context ??= vm.createContext();
    return this.context;
  }
}
