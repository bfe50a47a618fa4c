/** Fields of forms: each with its label, what is to be known of it, and what the controller refused it for. */
import {
  Checkbox,
  FormGroup,
  FormHelperText,
  FormSelect,
  FormSelectOption,
  HelperText,
  HelperTextItem,
  TextArea,
  TextInput,
} from '@patternfly/react-core';
import { type ReactNode, useEffect, useRef, useState } from 'react';
import { ApiError } from '../api/client.ts';
import { useWords } from '../texts/index.tsx';
import { type NumberRange, readNumber, shownNumber } from './number.ts';

export interface FieldProps {
  id: string;
  label: string;
  /** What the controller refused it for. */
  error?: string | undefined;
  help?: string | undefined;
  isRequired?: boolean;
  isDisabled?: boolean;
}

/** By the name of a field what is wrong with it, or with a part of it, of a call that was refused. */
export function faultsOf(error: unknown): (field: string) => string | undefined {
  const faults = error instanceof ApiError ? [...error.fields] : [];
  return field => faults.find(([name]) => name === field || name.startsWith(`${field}.`))?.[1];
}

const helpId = (id: string) => `${id}-help`;

/** Attributes of the input itself. */
function attributes({ id, error, help, isRequired = false, isDisabled = false }: FieldProps) {
  return {
    id,
    isRequired,
    isDisabled,
    validated: error === undefined ? ('default' as const) : ('error' as const),
    ...(error === undefined && help === undefined ? {} : { 'aria-describedby': helpId(id) }),
  };
}

/** Around an input of any kind. */
export function Field({
  id,
  label,
  error,
  help,
  isRequired = false,
  children,
}: FieldProps & { children: ReactNode }) {
  return (
    <FormGroup label={label} fieldId={id} isRequired={isRequired}>
      {children}
      <FieldHelp id={id} error={error} help={help} />
    </FormGroup>
  );
}

function FieldHelp({ id, error, help }: Pick<FieldProps, 'id' | 'error' | 'help'>) {
  if (error === undefined && help === undefined) return null;
  return (
    <FormHelperText>
      <HelperText id={helpId(id)} aria-live="polite">
        <HelperTextItem variant={error === undefined ? 'default' : 'error'}>{error ?? help}</HelperTextItem>
      </HelperText>
    </FormHelperText>
  );
}

interface TextFieldProps extends FieldProps {
  value: string;
  change: (value: string) => void;
  type?: 'text' | 'password' | 'date' | 'time' | 'email' | 'url';
  maxLength?: number;
  autoComplete?: string;
}

export function TextField(props: TextFieldProps) {
  const { value, change, type = 'text', maxLength, autoComplete } = props;
  return (
    <Field {...props}>
      <TextInput
        {...attributes(props)}
        type={type}
        value={value}
        {...(maxLength === undefined ? {} : { maxLength })}
        autoComplete={autoComplete ?? 'off'}
        onChange={(_event, text) => change(text)}
      />
    </Field>
  );
}

export function LongTextField(props: Omit<TextFieldProps, 'type' | 'autoComplete'> & { rows?: number }) {
  const { value, change, maxLength, rows } = props;
  return (
    <Field {...props}>
      <TextArea
        {...attributes(props)}
        value={value}
        resizeOrientation="vertical"
        {...(rows === undefined ? {} : { rows })}
        {...(maxLength === undefined ? {} : { maxLength })}
        onChange={(_event, text) => change(text)}
      />
    </Field>
  );
}

interface DescriptionFieldProps {
  /** What is described: the beginning of the field's id. */
  of: string;
  value: string;
  fault: (field: string) => string | undefined;
  change: (value: string) => void;
}

/** The description that people give to a thing. */
export function DescriptionField({ of, value, fault, change }: DescriptionFieldProps) {
  const { texts } = useWords();
  return (
    <LongTextField
      id={`${of}-description`}
      label={texts.common.description}
      maxLength={4096}
      value={value}
      error={fault('description')}
      change={change}
    />
  );
}

interface NumberFieldProps extends FieldProps, NumberRange {
  value: number;
  /** Gets NaN for what is none of the range; the field says so itself. */
  change: (value: number) => void;
}

/** A number, whole unless it is one of larger units. What is written stays as it is. */
export function NumberField(props: NumberFieldProps) {
  const { texts } = useWords();
  const { value, change, min = 0, max, unit = 1 } = props;
  const range = { min, ...(max === undefined ? {} : { max }), unit };
  const [text, setText] = useState('');
  const isNone = Number.isNaN(value);
  const own = isNone ? texts.common.numberFrom(unit === 1, min, max) : undefined;
  const all = { ...props, error: own ?? props.error };
  usePutBack(value, change);
  return (
    <Field {...all}>
      <TextInput
        {...attributes(all)}
        type="number"
        className="vk-number"
        min={min}
        {...(max === undefined ? {} : { max })}
        step={unit === 1 ? 1 : 'any'}
        value={shownNumber(text, value, range)}
        onChange={(_event, written) => {
          setText(written);
          change(readNumber(written, range));
        }}
      />
    </Field>
  );
}

/** A number that is none must not stay behind in a field that is shown no more. */
function usePutBack(value: number, change: (value: number) => void): void {
  const latest = useRef({ value, change, good: value });
  useEffect(() => {
    latest.current = { value, change, good: Number.isNaN(value) ? latest.current.good : value };
  });
  useEffect(
    () => () => {
      const { value: last, change: put, good } = latest.current;
      if (Number.isNaN(last)) put(good);
    },
    [],
  );
}

interface SelectFieldProps<T extends string> extends FieldProps {
  value: T;
  change: (value: T) => void;
  /** Values with their words, or options of another kind. */
  options: readonly (readonly [T, string])[];
  children?: ReactNode;
}

export function SelectField<T extends string>(props: SelectFieldProps<T>) {
  const { value, change, options, children } = props;
  return (
    <Field {...props}>
      <FormSelect {...attributes(props)} value={value} onChange={(_event, chosen) => change(chosen as T)}>
        {options.map(([key, word]) => (
          <FormSelectOption key={key} value={key} label={word} />
        ))}
        {children}
      </FormSelect>
    </Field>
  );
}

interface CheckFieldProps extends Pick<FieldProps, 'id' | 'label' | 'error' | 'help' | 'isDisabled'> {
  isOn: boolean;
  change: (isOn: boolean) => void;
}

export function CheckField({ id, label, error, help, isDisabled = false, isOn, change }: CheckFieldProps) {
  return (
    <Checkbox
      id={id}
      label={label}
      description={error ?? help}
      isDisabled={isDisabled}
      isChecked={isOn}
      onChange={(_event, on) => change(on)}
    />
  );
}

interface ChecksProps<T extends string> extends FieldProps {
  options: readonly (readonly [T, string])[];
  chosen: readonly T[];
  change: (chosen: T[]) => void;
}

/** Several of a few, in their order. */
export function Checks<T extends string>({
  id,
  label,
  error,
  help,
  options,
  chosen,
  change,
}: ChecksProps<T>) {
  const turn = (value: T, on: boolean) =>
    change(options.map(([key]) => key).filter(key => (key === value ? on : chosen.includes(key))));
  return (
    <FormGroup role="group" label={label} fieldId={id} isInline>
      {options.map(([value, word]) => (
        <Checkbox
          key={value}
          id={`${id}-${value}`}
          label={word}
          isChecked={chosen.includes(value)}
          onChange={(_event, on) => turn(value, on)}
        />
      ))}
      <FieldHelp id={id} error={error} help={help} />
    </FormGroup>
  );
}
