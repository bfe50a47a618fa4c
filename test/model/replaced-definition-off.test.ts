// See replaced-definition.ts.
import { skipPauses } from './pauses.ts';
import { replacedAnywhere } from './replaced-definition.ts';

skipPauses();

replacedAnywhere(false);
