import { Button, Form } from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { answer, api, type Domain } from '../../../api/client.ts';
import { LongTextField, SelectField, TextField } from '../../../parts/fields.tsx';
import { Failure, Shown } from '../../../parts/shown.tsx';
import { useWords } from '../../../texts/index.tsx';
import {
  type Argument,
  argumentsOf,
  firstOf,
  isComplete,
  isNumber,
  valuesOf,
  type Written,
} from './arguments.ts';
import { runCommand } from './command.ts';

/** Any command of the guest agent, with a form for its arguments. */
export function Commands({ domain }: { domain: Domain }) {
  const { id } = domain;
  const words = useWords().texts.guest;
  const query = useQuery({
    // each asking is in the audit
    queryKey: ['shown', 'commands', id],
    queryFn: () => answer(api.GET('/api/domains/{id}/available-guest-cmds/', { params: { path: { id } } })),
    retry: false,
  });
  return (
    <Shown query={query}>
      {({ emu_available_cmds: commands }) =>
        commands.length === 0 ? (
          <p>{words.noCommands}</p>
        ) : (
          <CommandForm id={id} commands={commands.toSorted()} />
        )
      }
    </Shown>
  );
}

const JSON_ONLY: readonly Argument[] = [{ name: 'fargs', kind: 'json' }];

function CommandForm({ id, commands }: { id: string; commands: readonly string[] }) {
  const { texts } = useWords();
  const words = texts.guest;
  const [command, setCommand] = useState(
    commands.includes('guest-get-osinfo') ? 'guest-get-osinfo' : (commands[0] ?? ''),
  );
  const known = argumentsOf(command);
  const asked = known ?? JSON_ONLY;
  const [written, setWritten] = useState<Written>(firstOf(asked));
  const [result, setResult] = useState<{ of: string; value: unknown } | undefined>();
  const [error, setError] = useState<unknown>(undefined);
  const [isBusy, setBusy] = useState(false);
  const choose = (chosen: string) => {
    setCommand(chosen);
    setWritten(firstOf(argumentsOf(chosen) ?? JSON_ONLY));
  };
  const run = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      const values = valuesOf(asked, written);
      const fargs = known === undefined ? ((values.fargs ?? {}) as Record<string, unknown>) : values;
      setResult({ of: command, value: await runCommand(id, command, fargs) });
    } catch (refused) {
      setError(refused);
      setResult(undefined);
    }
    setBusy(false);
  };
  return (
    <Form onSubmit={event => void run(event)}>
      <SelectField
        id="guest-command"
        label={words.command}
        options={commands.map(name => [name, name] as const)}
        value={command}
        change={choose}
      />
      {asked.map(argument => (
        <ArgumentField
          key={`${command} ${argument.name}`}
          argument={argument}
          value={written[argument.name] ?? ''}
          change={value => setWritten(before => ({ ...before, [argument.name]: value }))}
        />
      ))}
      <div>
        <Button
          type="submit"
          variant="secondary"
          isDisabled={isBusy || !isComplete(asked, written)}
          isLoading={isBusy}
          spinnerAriaLabel={texts.loading}
        >
          {words.run}
        </Button>
      </div>
      {error !== undefined && <Failure error={error} />}
      {result !== undefined && <Result {...result} />}
    </Form>
  );
}

interface ArgumentFieldProps {
  argument: Argument;
  value: string;
  change: (value: string) => void;
}

function ArgumentField({ argument, value, change }: ArgumentFieldProps) {
  const { texts } = useWords();
  const words = texts.guest;
  const { name, kind, isRequired = false, isSecret = false, options = [] } = argument;
  const field = { id: `argument-${name}`, label: name, isRequired, value, change };
  switch (kind) {
    case 'list':
      return <LongTextField {...field} rows={3} help={words.oneALine} />;
    case 'json':
      return <LongTextField {...field} rows={4} help={words.asJson} />;
    case 'number':
      return <TextField {...field} error={isNumber(value) ? undefined : texts.common.numberFrom(true)} />;
    case 'truth':
      return (
        <SelectField
          {...field}
          options={[
            ['', texts.none],
            ['true', texts.yes],
            ['false', texts.no],
          ]}
        />
      );
    case 'choice':
      return (
        <SelectField {...field} options={['', ...options].map(one => [one, one || texts.none] as const)} />
      );
    default:
      return isSecret ? (
        <TextField {...field} type="password" autoComplete="new-password" />
      ) : (
        <TextField {...field} />
      );
  }
}

/** What a program printed is shown as it stands. */
function Result({ of, value }: { of: string; value: unknown }) {
  const { texts } = useWords();
  const words = texts.guest;
  const { 'out-data': out, 'err-data': err, ...others } = (value ?? {}) as Record<string, unknown>;
  const isProgram = of === 'guest-exec';
  return (
    <section aria-label={words.result} aria-live="polite">
      {isProgram && typeof out === 'string' && <pre className="vk-json">{out}</pre>}
      {isProgram && typeof err === 'string' && <pre className="vk-json">{err}</pre>}
      <pre className="vk-json">{JSON.stringify(isProgram ? others : value, null, 2)}</pre>
    </section>
  );
}
