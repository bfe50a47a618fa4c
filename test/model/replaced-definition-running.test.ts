// See replaced-definition.ts.
import { test } from '@jest/globals';
import { skipPauses } from './pauses.ts';
import { cases, isPutBackAnywhere, replacedAnywhere } from './replaced-definition.ts';

skipPauses();

replacedAnywhere(true);

test.each(cases(true))('%s: the definition of the middle is put back after the end', (_name, kind) =>
  isPutBackAnywhere(kind),
);
