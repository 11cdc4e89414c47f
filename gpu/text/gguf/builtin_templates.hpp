#pragma once

namespace troupe::gguf {

/// Gemma 1 to 3. There is no system role: a system message begins the first user turn.
inline constexpr auto gemma_template = R"jinja(
{{- bos_token }}
{%- set ns = namespace(system='') %}
{%- for message in messages %}
{%- if message.role == 'system' and loop.first %}
{%- set ns.system = (message.content | trim) + '\n\n' %}
{%- elif message.role == 'assistant' %}
{{- '<start_of_turn>model\n' + (message.content | trim) + '<end_of_turn>\n' }}
{%- else %}
{{- '<start_of_turn>user\n' + ns.system + (message.content | trim) + '<end_of_turn>\n' }}
{%- set ns.system = '' %}
{%- endif %}
{%- endfor %}
{%- if ns.system %}
{{- '<start_of_turn>user\n' + (ns.system | trim) + '<end_of_turn>\n' }}
{%- endif %}
{%- if add_generation_prompt %}
{{- '<start_of_turn>model\n' }}
{%- endif %}
)jinja";

/// How tool calls are written where the model's own template says nothing about them. Only its
/// grammar and its parser are used.
inline constexpr auto tool_format_template = R"jinja(
{%- if tools %}
{{- '<|im_start|>system\n# Tools\n<tools>' }}
{%- for tool in tools %}{{- '\n' + (tool | tojson) }}{%- endfor %}
{{- '\n</tools><|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{{- '<|im_start|>assistant\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{%- if call.function %}{%- set call = call.function %}{%- endif %}
{{- '\n<tool_call>\n{"name": "' + call.name + '", "arguments": ' }}
{%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
)jinja";

}  // namespace troupe::gguf
