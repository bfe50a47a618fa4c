import vm from 'node:vm';
import { TestEnvironment } from 'jest-environment-node';

// What jest and its tests must share with the process around them, though the language gives each context its own.
const SHARED = new Set(['Buffer', 'ArrayBuffer', 'Uint8Array']);

/**
 * jest's environment for Node, in a context whose global object is an ordinary one.
 *
 * jest's own is a proxy behind an interceptor: each `Math`, `Buffer` or `process` in a test and in what it tests is looked up
 * by way of both, a hundred times as slowly as elsewhere, and costs a tenth of all work of the tests.
 */
export default class OrdinaryGlobalEnvironment extends TestEnvironment {
  constructor(config, context) {
    super(config, context);
    const intercepted = this.global;
    this.context = vm.createContext(vm.constants.DONT_CONTEXTIFY);
    this.global = vm.runInContext('globalThis', this.context);
    const own = new Set(Reflect.ownKeys(this.global));
    for (const key of Reflect.ownKeys(intercepted))
      if (!own.has(key) || SHARED.has(key))
        this.#take(key, Reflect.getOwnPropertyDescriptor(intercepted, key));
    this.global.global = this.global;
    // which database the tests of the project are about (store/test-database.ts)
    const { database } = config.projectConfig.testEnvironmentOptions;
    if (database) this.global.process.env.VIRTKEEP_TEST_DATABASE = database;
    this.global.Error.stackTraceLimit = 100;
    this.moduleMocker = new this.moduleMocker.constructor(this.global);
    const { projectConfig } = config;
    this.fakeTimersModern.dispose();
    this.fakeTimersModern = new this.fakeTimersModern.constructor({
      config: projectConfig,
      global: this.global,
    });
    // the old kind, which no test uses, would keep the other context
    this.fakeTimers.dispose();
    this.fakeTimers = null;
  }

  // Getters stand for what the process loads when it is first asked for.
  #take(key, { get, enumerable, value }) {
    const { global } = this;
    const place = value =>
      Object.defineProperty(global, key, { configurable: true, writable: true, enumerable, value });
    if (get === undefined) place(value);
    else
      Object.defineProperty(global, key, {
        configurable: true,
        enumerable,
        get: () => globalThis[key],
        set: place,
      });
  }
}
