// Typed lint, and how deep blocks may nest: biome does the rest. A floating promise in a backup tool is a lost error.
import tseslint from 'typescript-eslint';

export default tseslint.config(
  {
    ignores: [
      'bundle/**',
      // a program of its own, whose types are not those of the daemons
      'controller/web/**',
      '**/node_modules/**',
      '**/dist/**',
      'shared/src/gen/**',
      '.lab/**',
      '.cache/**',
      'test/contract/clients/generated-main-job.ts',
    ],
  },
  {
    files: ['**/*.ts'],
    languageOptions: {
      parser: tseslint.parser,
      parserOptions: { project: './tsconfig.json', tsconfigRootDir: import.meta.dirname },
    },
    plugins: { '@typescript-eslint': tseslint.plugin },
    rules: {
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': ['error', { checksVoidReturn: { arguments: false } }],
      '@typescript-eslint/await-thenable': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        { considerDefaultExhaustiveForUnions: true },
      ],
      'max-depth': ['error', 4],
    },
  },
);
