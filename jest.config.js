import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

// Unit tests stand beside their source, the others under test/. `soak` is what takes long or needs much.

// Long ones, most of them twins of one that `make test` runs: compressed, of another victim or storage, random, of more disks.
const LONG = [
  'test/e2e/faults-increment-compressed',
  'test/e2e/harness',
  'test/e2e/harness-world',
  'test/e2e/lending-random',
  'test/e2e/long-increments',
  'test/integration/guest/ending-commands',
  'test/integration/guest/every-command',
  'test/integration/increments/five-compressed',
  'test/integration/increments/trimmed-compressed',
  'test/integration/lending/many-disks-off',
  'test/integration/lending/two-nodes-controller-killed',
  'test/integration/lending/two-nodes-reader-agent-killed',
  'test/integration/restore/increments-compressed',
  'test/integration/snapshots/history-second',
  'test/integration/zfs/backup',
  'test/integration/zfs/lending',
];
// every case of those of which `make test` runs a few (test/lab/few.ts)
const FEW = [
  'test/e2e/faults-{backup,backup-kill,increment,instant,lend-attach,lend-detach,recompress,restore,snapshots-make,snapshots-revert}',
  'test/e2e/faults-{template-change,template-clone,trim}',
  'test/integration/export/export-faults',
  'test/integration/restore/{appliance,config,convert,convert-ovf,convert-virtnbd,import-disk-faults}',
];
// What opens the database of a controller, by itself or through one of these, runs on PostgreSQL, too. Not what plays through thousands of
// days or deaths, each a round to the server, and not what is about the API document alone, about bytes
// that pass through, or about nodes that lie.
const OPENS_DATABASE = /(test-database|test-server|'\.\/test-kit|\/app|-world|\.\/world)\.ts'/;
const ON_SQLITE_ALONE =
  /(api-document|crash|declared-errors|foreign-clients|generated-clients|grpc-roles|hostile-nodes|nodes-download|pages|sockets|stuck|upload|upload-cli|year)\.test\.ts$/;
const onPostgres = ['controller/src/**/*.test.ts', 'test/contract/{notifications,rest,scale}/*.test.ts']
  .flatMap(pattern => globSync(pattern, { cwd: import.meta.dirname }))
  .filter(file => !ON_SQLITE_ALONE.test(file))
  .filter(file => OPENS_DATABASE.test(readFileSync(join(import.meta.dirname, file), 'utf8')));
const files = names => names.map(name => `<rootDir>/${name}.test.ts`);
const base = {
  testEnvironment: '<rootDir>/test/environment.js',
  extensionsToTreatAsEsm: ['.ts'],
  transform: {
    '^.+\\.ts$': [
      '@swc/jest',
      { jsc: { target: 'es2024', parser: { syntax: 'typescript' } }, module: { type: 'es6' } },
    ],
  },
  transformIgnorePatterns: ['/node_modules/'],
  modulePathIgnorePatterns: ['<rootDir>/\\.lab', '<rootDir>/\\.cache', '<rootDir>/bundle', '/dist/'],
};

export default {
  // ends what hangs; a busy machine makes slow, not wrong
  testTimeout: 900_000,
  reporters: ['default', '<rootDir>/test/summary-reporter.js'],
  projects: [
    { ...base, displayName: 'unit', testMatch: ['<rootDir>/{shared,agent,controller}/**/src/**/*.test.ts'] },
    {
      ...base,
      displayName: 'postgres',
      testMatch: onPostgres.map(file => `<rootDir>/${file}`),
      globalSetup: '<rootDir>/test/postgres-setup.js',
      globalTeardown: '<rootDir>/test/postgres-teardown.js',
      testEnvironmentOptions: { database: 'postgres' },
    },
    { ...base, displayName: 'contract', testMatch: ['<rootDir>/test/{contract,model}/**/*.test.ts'] },
    {
      ...base,
      displayName: 'integration',
      testMatch: [
        '<rootDir>/test/integration/**/*.test.ts',
        '<rootDir>/agent/node-libvirt/test/**/*.test.ts',
      ],
      testPathIgnorePatterns: files(LONG),
    },
    {
      ...base,
      displayName: 'e2e',
      testMatch: ['<rootDir>/test/e2e/**/*.test.ts'],
      testPathIgnorePatterns: files(LONG),
    },
    {
      ...base,
      displayName: 'soak',
      // the random ones are longer there
      testMatch: [
        '<rootDir>/test/{soak,model}/**/*.test.ts',
        ...files([...LONG, ...FEW]),
        '<rootDir>/agent/src/ovf/hostile.test.ts',
        '<rootDir>/agent/src/appliance/vma/mutations.test.ts',
        '<rootDir>/controller/src/services/retention/plan.random.test.ts',
        '<rootDir>/controller/src/services/schedules/year.test.ts',
      ],
    },
  ],
};
