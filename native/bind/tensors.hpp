// Arrays of the caller: NumPy's by their buffer, torch's tensors by the C functions that DLPack lists on their type, without a call of Python.
// The tensors of torch before 2.10, whose type lists no such functions, are read by their attributes.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace overt {

namespace nb = nanobind;

// Both kinds of array as dlpack.h's DLTensor, which views the caller's memory during the call. Strides count numbers.
struct TensorView {
    void* data = nullptr;
    std::int32_t device_type = 1, device_id = 0;
    std::int32_t ndim = 0;
    nb::dlpack::dtype type{};
    std::int64_t* shape = nullptr;
    std::int64_t* strides = nullptr;
    std::uint64_t byte_offset = 0;
};

// A parameter of a bound function; `writable` refuses arrays that are not.
template <bool writable>
class TensorArgument {
public:
    bool take(nb::handle source, std::uint8_t flags, nb::detail::cleanup_list* cleanup) {
        return PyObject_CheckBuffer(source.ptr()) ? take_buffer(source, flags, cleanup) : take_tensor(source);
    }

    size_t ndim() const { return view.ndim; }
    size_t shape(size_t dim) const { return view.shape[dim]; }
    std::int64_t stride(size_t dim) const { return view.strides[dim]; }
    nb::dlpack::dtype dtype() const { return view.type; }
    size_t size() const {
        size_t count = 1;
        for (size_t dim = 0; dim < ndim(); dim++) count *= shape(dim);
        return count;
    }
    size_t nbytes() const { return (size() * view.type.bits + 7) / 8; }
    void* data() const { return static_cast<char*>(view.data) + view.byte_offset; }

private:
    using Buffer = std::conditional_t<writable, nb::ndarray<nb::device::cpu>, nb::ndarray<nb::ro, nb::device::cpu>>;

    bool take_buffer(nb::handle source, std::uint8_t flags, nb::detail::cleanup_list* cleanup) {
        nb::detail::make_caster<Buffer> caster;
        if (!caster.from_python(source, flags, cleanup)) return false;
        view_buffer(caster.value);
        return true;
    }

    void view_buffer(const Buffer& array) {
        buffer = array;
        view.data = const_cast<void*>(static_cast<const void*>(buffer.data()));
        view.ndim = static_cast<std::int32_t>(buffer.ndim());
        view.type = buffer.dtype();
        view.shape = const_cast<std::int64_t*>(buffer.shape_ptr());
        view.strides = const_cast<std::int64_t*>(buffer.stride_ptr());
    }

    // The table of functions is dlpack.h's DLPackExchangeAPI, version 1: a header (two numbers, a pointer), then five functions.
    bool take_tensor(nb::handle source) {
        struct Exchange {
            std::uint32_t major, minor;
            void* previous;
            void *allocate, *from_object, *to_object;
            int (*view_of_object)(void* object, TensorView* view);
            void* stream;
        };
        static PyObject* name = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
        PyObject* capsule = PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(source.ptr())), name);
        if (!capsule) return take_attributes(source);
        auto* exchange = static_cast<const Exchange*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
        bool taken = exchange && exchange->major == 1 && exchange->view_of_object(source.ptr(), &view) == 0;
        Py_DECREF(capsule);  // its table is the library's and stays
        if (!taken) PyErr_Clear();
        return taken && view.device_type == 1 && has_memory();
    }

    // About 1 µs a tensor. An object without these attributes is no tensor on the CPU, whatever the error.
    bool take_attributes(nb::handle source) {
        PyErr_Clear();
        try {
            nb::object dtype = source.attr("dtype");
            nb::str name(dtype);
            auto same = [&](const NamedType& known) { return std::strcmp(known.name, name.c_str()) == 0; };
            auto* type = std::find_if(std::begin(TYPES), std::end(TYPES), same);
            if (type == std::end(TYPES) || !nb::cast<bool>(source.attr("is_cpu"))) return false;
            auto sizes = nb::cast<std::vector<size_t>>(source.attr("shape"));
            auto strides = nb::cast<std::vector<std::int64_t>>(source.attr("stride")());
            auto* data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(source.attr("data_ptr")()));
            view_buffer(Buffer(data, sizes.size(), sizes.data(), nb::handle(), strides.data(), type->type));
            return has_memory();
        } catch (...) {
            return false;
        }
    }

    bool has_memory() const { return view.data || size() == 0; }  // autograd's zero tensors have none

    struct NamedType {
        const char* name;
        nb::dlpack::dtype type;
    };
    static constexpr NamedType TYPES[] = {
        {"torch.float32", nb::dtype<float>()},     {"torch.float64", nb::dtype<double>()},
        {"torch.bool", nb::dtype<bool>()},         {"torch.int64", nb::dtype<std::int64_t>()},
        {"torch.int32", nb::dtype<std::int32_t>()}, {"torch.int8", nb::dtype<std::int8_t>()},
        {"torch.float16", {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1}},
        {"torch.bfloat16", {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1}},
    };

    TensorView view;
    Buffer buffer;
};

}  // namespace overt

namespace nanobind::detail {

template <bool writable>
struct type_caster<overt::TensorArgument<writable>> {
    NB_TYPE_CASTER(overt::TensorArgument<writable>, const_name("array"))

    bool from_python(handle source, uint8_t flags, cleanup_list* cleanup) noexcept { return value.take(source, flags, cleanup); }
};

}  // namespace nanobind::detail
